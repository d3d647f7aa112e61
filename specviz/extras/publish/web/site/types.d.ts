/** A run in the list of a static site; ``answer``: the key of its attribution, "" where there is none. */
interface SiteRun {
  key: string;
  title: string;
  method: string;
  model: string;
  category: string;
  tags: string[];
  prompt: string;
  answer: string;
  /** Whether its drafts are there under every verifier. */
  judged: boolean;
  /** Whether it is plain decoding. */
  plain: boolean;
  tokens: number;
  steps: number;
  per_step: number | null;
}

/** What every page of a static site knows; ``outcomes``: the sentence about the runs of a prompt. */
interface SiteRuns {
  title: string;
  runs: SiteRun[];
  outcomes: { [prompt: string]: string };
  lessons: LessonCard[];
}

/** The runs of a prompt compared: specviz/extras/publish/site/documents.py. */
interface SiteComparison {
  metrics: RunMetric[];
  runs: { [key: string]: { numbers: LaneNumbers; lens: LaneCheck } };
  sets: { runs: string[]; stretches: Advantage[]; claim: Claim }[];
}
