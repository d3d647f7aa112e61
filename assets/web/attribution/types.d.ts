/* What the attribution of an answer is made of: specviz/pages/attribution/. Global. */

/** Which tokens count as copied: a run with the words beside it that its source has too, or drafted tokens alone. */
type Scored = "whole" | "drafted";
type Counted = "words" | Scored;
/** [from, to) in code points of a text, or in tokens. */
type Stretch = [from: number, to: number];
type SourceKind = "context" | "pool" | "turn" | "prompt" | "output";

/** Consecutive output tokens whose sources are consecutive too; ``output`` and ``source`` count code points. */
interface SourceLink {
  number: number; kind: SourceKind; passage: number; source_index: number;
  output: Stretch; source: Stretch; output_tokens: Stretch; source_tokens: Stretch;
  text: string; source_text: string; verbatim: boolean;
  /** How rare its words are: Σ −log₂ p (decoders/study/attribute/rarity.py). */
  bits: number;
}

/** What went from a source into the answer. */
interface SourceShare { used_tokens: number; copied_tokens: number; links: number; longest: number }
/** What copies are taken from: a passage, or another part of the text; its share at min_run 1. */
interface AttributedSource extends SourceShare {
  kind: SourceKind; passage: number; name: string; text: string; tokens: number;
}

/** Token precision, recall and F1 against known quotes (decoders/study/attribute/quotes.py). */
interface QuoteScore { precision: number; recall: number; f1: number; right_passage: number | null }

/** What links come to at thresholds above the entry before and up to ``min_run``. */
interface Threshold {
  min_run: number; links: number; used_sources: number; not_verbatim: number; copied_tokens: number; own_tokens: number;
  uncopied: Stretch[]; sources: SourceShare[]; score: QuoteScore | null;
}

/** All links of a run by one way to count (specattribution/1). */
interface AttributedView {
  run: {
    id: string; title: string; method: string; method_title: string; signal: "copy" | "attention" | "";
    model: string; forced: boolean;
  };
  output: string; output_tokens: number; given_sources: number; sources: AttributedSource[]; links: SourceLink[]; thresholds: Threshold[];
}

/** What a threshold leaves of an answer's links, and what that comes to. */
interface Attributed extends Omit<Threshold, "links"> { links: SourceLink[] }

/** Known quotes: the quoted passage of every output token (-2: none, -1: unknown), and characters of the answer. */
interface KnownQuotes { tokens: number[]; quotes: [from: number, to: number, passage: number][]; quoted_tokens: number }

/** The part of a source in some words (decoders/study/attribute/evidence.py). */
type Standing = "contributed" | "corroborates" | "against" | "none";
interface Weight {
  start: number; stop: number; fall: number; reread: number | null; has_words: boolean; standing: Standing; said: string;
}
/** The answer read without a source, or (no kind) without a link's words: falls of log p by token, and first choices that
 *  differ, with their probability. */
interface Cause {
  kind: SourceKind | ""; passage: number; name: string; model: string; places: number; mask_fault: string;
  fall: number[]; reread: number[]; instead: ([text: string, p: number] | null)[]; weights: Weight[];
}

/** A run's attribution as its page draws it. */
interface SignalDocument {
  id?: string; title: string; question: string; method: string; views: Record<Counted, AttributedView>; gold: KnownQuotes | null;
  /** What stands in the sources by its text alone. */
  verbatim: AttributedView;
  /** Each output token, and each sentence, in code points of the answer. */
  tokens: Stretch[];
  sentences: { tokens: Stretch; output: Stretch }[];
  /** The answer's numbers, dates and names (decoders/study/attribute/absent.py), in code points. */
  claims: { start: number; stop: number; kind: "number" | "date" | "name"; is_given: boolean }[];
  causes: Cause[];
}

/** ``api/attribution/runs/<id>`` of a run that is over, and of one that is not. */
interface AttributedRun extends SignalDocument {
  id: string; state: "done"; error: string; others: { method: string; id: string }[];
}
interface WaitingRun { id: string; title: string; state: "queued" | "running"; ahead: number; views?: undefined }

/** What is chosen in the view. */
interface AttributionChoice { minRun: number; minBits: number; counted: Counted; active: number }

/** ``api/attribution``: the signals, and why nothing can run. ``missing``: why this one cannot. */
interface SignalCard { name: string; title: string; tells: string; missing: string; usual: boolean }
interface SignalCatalog {
  reason: string; signals: SignalCard[]; min_runs: number[]; counted: Record<string, string>; max_rows: number;
  plotly: string;
  /** Runs to begin with, in place of the run that the app opens on. */
  documents: { id: string; title: string }[]; first: string;
  paper: { where: string; rows: [name: string, precision: number, recall: number, f1: number][] };
}

/** ``api/attribution/start``: the runs that began, and what was left out. */
interface StartedSignals { runs: { method: string; id: string }[]; notes: string[] }

/** ``api/attribution/scores/<id>``: a scoring of known quotes; ``scores`` by the catalog's min_runs. */
interface Scores {
  id: string; name: string; state: "queued" | "running" | "done" | "stopped" | "failed"; error: string;
  done: number; total: number; notes: string[];
  rows: { method: string; title: string; counted: Scored; examples: number; scores: QuoteScore[] }[];
  answers: ScoredAnswer[];
}
interface ScoredAnswer {
  id: string; question: string; quotes: number; f1: { [method: string]: Record<Scored, number[]> | undefined };
}
