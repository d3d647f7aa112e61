/* The trace as the server sends it. Made by python -m decoders.trace.schema from decoders/trace/tables.txt
   and run.txt: edit those. */

/** A table: a list of values per column. ``term:<key>`` are a method's own numbers, null where not measured. */
type Columns<Row> = { [name in keyof Row]: Row[name][] } & { [term: `term:${string}`]: (number | null)[] | undefined };
/** The value of a parameter; null: left open, or off. */
type Setting = string | number | boolean | null;

/** Every token id that occurs anywhere in the trace, once. */
interface PieceRow {
  id: number;
  hex: string;
  special: boolean;
}

/** One row per position: the prompt, then the output. */
interface TokenRow {
  id: number;
  segment: string;
  passage: number;
  step: number;
  kind: "prompt" | "accepted" | "bonus" | "plain";
  origin: string;
  source: number;
  pool: number;
  prob: number | null;
  rank: number;
}

/** One row per verify step; the method's numbers follow as columns "term:<key>", see run["step_terms"]. */
interface StepRow {
  context: number;
  route: string;
  reason: string;
  drafted: number;
  depth: number;
  accepted: number;
  emitted: number;
  bonus: number;
  outcome: "full" | "partial" | "none" | "plain";
  origins: string;
  entropy: number | null;
  draft_ms: number | null;
  verify_ms: number | null;
  decide_ms: number | null;
  commit_ms: number | null;
  unlisted: number;
  engine: string;
  engine_rows: number | null;
  engine_keys: number | null;
  elapsed_ms: number | null;
}

/** One row per tree node, root first, in tree order; the method's numbers follow as columns "term:<key>", see
 * run["node_terms"]. */
interface NodeRow {
  step: number;
  token: number;
  parent: number;
  depth: number;
  origin: string;
  source: number;
  pool: number;
  draft_prob: number | null;
  prob: number | null;
  rank: number;
  status: "root" | "accepted" | "rejected" | "unreached";
  reason: string;
}

/** What the target would have said after each visited node (the root and the accepted path): its first choices. */
interface TargetRow {
  step: number;
  node: number;
  token: number;
  prob: number | null;
}

/** The ranking behind each draft, losers included; score terms follow as columns "term:<key>", see run["terms"]. */
interface CandidateRow {
  step: number;
  position: number;
  pool: number;
  score: number | null;
  length: number;
  rank: number;
  chosen: boolean;
  excluded: string;
  would_accept: number;
}

/** A draft model's own say after each node it went on from, beside the target's: the first choices of both, the
 * drafted tokens and what was emitted, as compared: at temperature 1, or after the run's warpers where tokens were
 * drawn; in the order of the drafter's ranks. */
interface GuessRow {
  step: number;
  node: number;
  token: number;
  rank: number;
  draft_prob: number | null;
  prob: number | null;
  residual: number | null;
}

/** Nodes that were left out of a draft, best first; the target never saw them: their row costs more than they bring,
 * the drafter ranked them too low, or a grammar forbids them. */
interface PrunedRow {
  step: number;
  token: number;
  parent: number;
  draft_prob: number | null;
  score: number | null;
  why: "rank" | "cost" | "grammar";
}

/** Candidates of a block drafter, position by position, and the walk through them that it drafted. */
interface LatticeRow {
  step: number;
  depth: number;
  rank: number;
  token: number;
  logprob: number | null;
  walked: boolean;
}

/** What a candidate adds to the logits of those at the next position: between the first candidates of both, and the
 * walk. */
interface TransitionRow {
  step: number;
  depth: number;
  before: number;
  rank: number;
  score: number | null;
}

/** What a draft model with a vocabulary of its own wrote in a step, and the drafted tokens that its text became. */
interface AssistantRow {
  step: number;
  token: number;
  hex: string;
  draft_prob: number | null;
  first: number;
  last: number;
}

/** Where a draft model's queries, or those of probes, looked in the target's cache; small weights are left out. */
interface AttentionRow {
  step: number;
  node: number;
  layer: number;
  head: number;
  position: number;
  weight: number | null;
}

/** Extra rows that were scored but never committed. */
interface ProbeRow {
  step: number;
  parent: number;
  offset: number;
  kind: string;
  token: number;
  prob: number | null;
}

/** The text a method drafts from where it does not stand in the prompt: all of it, or (if long) what was referred to.
 * */
interface PoolRow {
  position: number;
  id: number;
  passage: number;
}

/** What plain decoding wrote for the same prompt, by run.plain_sampling, where it was run for comparison. */
interface PlainRow {
  id: number;
}

/** The tables of a trace by name: each as columns. */
interface Tables {
  pieces: Columns<PieceRow>;
  tokens: Columns<TokenRow>;
  steps: Columns<StepRow>;
  nodes: Columns<NodeRow>;
  targets: Columns<TargetRow>;
  candidates: Columns<CandidateRow>;
  guesses?: Columns<GuessRow>;
  pruned?: Columns<PrunedRow>;
  lattice?: Columns<LatticeRow>;
  transitions?: Columns<TransitionRow>;
  assistant?: Columns<AssistantRow>;
  attention?: Columns<AttentionRow>;
  probes: Columns<ProbeRow>;
  pool: Columns<PoolRow>;
  plain: Columns<PlainRow>;
}

/** The run as a whole. */
interface Run {
  id: string;
  title?: string;
  created: string;
  complete: boolean;
  stop: string;
  error?: string;
  model: RunModel;
  method: RunMethod;
  terms: RunTerm[];
  node_terms?: RunTerm[];
  step_terms?: RunTerm[];
  origins?: RunOrigin[];
  sampling: RunSampling;
  max_new_tokens: number;
  length?: Record<string, unknown>;
  prompt_length: number;
  stop_ids?: number[];
  versions?: Record<string, unknown>;
  machine?: RunMachine;
  timings: RunTimings;
  metrics?: Record<string, number | null>;
  metric_help?: RunMetric[];
  reference?: string;
  reference_of?: string;
  turn?: number;
  given_prompt?: string;
  compression?: RunCompression;
  unplaced?: string[];
  pool?: RunPool;
  reads?: RunReads;
  attention?: RunAttention;
  memory?: RunMemory;
  kept?: RunState;
  part?: RunPart;
  one_row?: RunOneRow;
  plain_sampling?: RunSampling;
  forced?: boolean;
  first_choices?: number;
  opens?: number;
  plain_run?: string;
  category?: string;
  passed_over?: string[];
  grammar?: RunGrammar;
  processing?: RunProcessing;
  left_out?: string[];
  unknown?: string[];
  imported?: RunImported;
  recorded_from?: RunSource;
  recomputed?: string[];
  redrafted?: RunRedrafted;
  backend?: string;
}

/** The target. */
interface RunModel {
  name?: string;
  key?: string;
  family?: string;
  layers?: number;
  heads?: number;
  kv_heads?: number;
  hidden?: number;
  vocab?: number;
  parameters?: number;
  context_length?: number;
  dtype?: string;
  device?: string;
  weights?: string;
  activations?: string;
  packed?: boolean;
  fused_norms?: number;
  dequantised?: RunGguf;
}

/** A GGUF file that a model was read from. */
interface RunGguf {
  file?: string;
  sha256?: string;
  bytes?: number;
  types?: Record<string, number | null>;
}

/** The drafting method. */
interface RunMethod {
  name: string;
  title?: string;
  paper?: string;
  summary?: string;
  lossless?: boolean;
  params?: Record<string, Setting>;
  resolved?: Record<string, Setting>;
  drafters?: string[];
  controls?: RunControl[];
  code?: RunCode;
}

/** A parameter of the method, in words. */
interface RunControl {
  name: string;
  label?: string;
  help?: string;
}

/** The code that decided: file and function. */
interface RunCode {
  drafts?: string;
  verifies?: string;
}

/** A number that the method records beside the columns; a bar is drawn where low < high. */
interface RunTerm {
  key: string;
  label?: string;
  help?: string;
  low?: number | null;
  high?: number | null;
}

/** A place where drafted tokens come from. */
interface RunOrigin {
  name: string;
  letter?: string;
  label?: string;
  sentence?: string;
  outline?: string;
  hue?: number;
  beside?: boolean;
}

/** A metric, in words. */
interface RunMetric {
  key: string;
  label?: string;
  formula?: string;
  unit?: string;
  help?: string;
}

/** The settings by which tokens were drawn. */
interface RunSampling {
  temperature?: number;
  top_k?: number;
  top_p?: number;
  seed?: number;
}

/** The machine that ran it. */
interface RunMachine {
  processor?: string;
  engine?: string;
  threads?: number;
}

/** Times of the run; null: not measured. */
interface RunTimings {
  prefill_ms?: number | null;
  prepare_ms?: number | null;
  decode_ms?: number | null;
  one_row_ms?: number | null;
  plain_tokens_per_s?: number | null;
  untimed_tokens?: number | null;
  repeats_ms?: number[];
}

/** Bytes that the run took. */
interface RunMemory {
  kv_bytes?: number;
  kv_bytes_per_token?: number;
  draft_bytes?: number;
}

/** The time of a forward of one row. */
interface RunOneRow {
  ms?: number | null;
  run?: string;
  measured?: string;
  engine?: string;
  context?: number[];
}

/** The text that the method drafts from, where it does not (as it stands) lie in the prompt. */
interface RunPool {
  label?: string;
  tokens?: number;
  passages?: number;
  in_prompt?: boolean;
}

/** The prompt's compression, in numbers. */
interface RunCompression {
  compressor?: string;
  ratio_asked?: number;
  context_tokens?: number;
  kept_tokens?: number;
  prompt_tokens_full?: number;
  compress_ms?: number | null;
}

/** Layers and heads of the target that the drafter reads. */
interface RunReads {
  hidden_layer?: number | null;
  heads?: unknown[][];
}

/** The layers and heads of the table attention. */
interface RunAttention {
  label?: string;
  layers?: number[];
  heads?: number;
  probes?: boolean;
}

/** The method's state that outlasts the run. */
interface RunState {
  warm?: boolean;
  unit?: string;
  count?: number;
  before?: number;
}

/** The trained part that drafted. */
interface RunPart {
  kind?: string;
  from?: string;
  format?: string;
  title?: string;
  fingerprint?: string;
  features?: number[];
  offset?: number;
  draft_vocab?: number;
  acceptance?: number;
  verifier?: string;
  warnings?: string[];
  training?: RunTraining;
}

/** The training of a part. */
interface RunTraining {
  tokens?: number;
  seconds?: number;
  acceptance?: number;
  top1?: number;
}

/** The source that the run was read from. */
interface RunImported {
  source: string;
  title: string;
  said: Record<string, unknown>;
  notes: string[];
  warnings?: string[];
  text?: string;
  served?: string;
  totals?: Record<string, unknown>;
}

/** The foreign decoding that was recorded. */
interface RunSource {
  what: string;
  notes: string[];
}

/** The drafts that were made again, beside the server's. */
interface RunRedrafted {
  method?: string;
  params?: Record<string, Setting>;
  compared?: number;
  differing?: number;
  longer?: number;
}

/** The logits processors of a run. */
interface RunProcessing {
  settings: Record<string, unknown>;
  extra: string[];
  names: string[];
}

/** The form that an answer had to have. */
interface RunGrammar {
  kind: string;
  text: string;
  drafts: string;
  prefix: number;
}
