/* What ``api/lab`` answers (page/display.py, experiments), and what its form holds. Global. */

interface LabMetric {
  key: string; label: string; formula: string; unit: string; help: string; parts: boolean; trained: boolean;
}
interface LabAxis { param: string; label: string; values: Setting[] }
interface LabLine { label: string; method: string; params: Record<string, Setting> }

/** An experiment's description: ``Experiment.described``. */
interface LabExperiment {
  name: string; title: string; paper: string; figure: string; question: string; finding: string; note: string;
  prompts: string; count: number; max_new_tokens: number; temperature: number; length?: string; metrics: string[]; x: string; chart: string;
  axes: LabAxis[]; training_steps: number; parts: string; promptless: boolean; repeats: number; lines: LabLine[];
  own: { key: string; label: string }[];
}
/** A recipe; the values of its axes are texts; ``papers``: where printed numbers are from. */
interface LabRecipe extends LabExperiment { papers: string[]; missing: string[] }

interface Recorded { engine: string; load: number; rough: boolean; machine: { cores: number } }

/** What is known of results: the experiment, the model, what came of it. */
interface LabAbout extends LabExperiment {
  id: string; state: LabState; created: string; model: { name: string }; notes: string[]; runs: number; cases: number;
  /** User turns of all prompts; of results from before they were decoded, none. */
  turns?: number;
  /** What the categories are, where these are no tasks. */
  groups?: string;
  /** Line → why it could not be run. */
  absent?: Record<string, string>;
  /** Of an example result: the machine, and whether other work made its times rough. */
  recorded?: Recorded;
  /** They come along, and cannot be deleted. */
  shipped?: boolean;
  /** In which an example result is like the paper's, and in which not. */
  compared?: string;
}
type LabState = "queued" | "running" | "complete" | "cancelled" | "cut off" | "error";
/** Results in the list of results. */
type LabListed = Pick<LabAbout, "id" | "name" | "title" | "figure" | "paper" | "created" | "state">;

/** What was recorded of an experiment, small: per line its values as shares of the largest. */
interface LabPicture {
  kind: "line" | "bar" | "heat"; lines: (number | null)[][]; marks?: [number, number][]; metric: string; range: string;
  /** Of each line or bar (with its number), or of the only line the places that it spans. */
  names?: string[];
  note?: string;
  finding: LabSummary;
}
/** Its main claim's sentence and mark, and the paper's; how many ``claims`` are in its order, how many undecided. */
interface LabSummary { text: string; mark?: string; paper?: string; claims: number; alike: number; open: number }
/** What comes along, small: ``api/lab/gallery``. */
interface LabGallery {
  papers: Record<string, { title: string; short: string; order: number }>; recipes: LabShort[];
  pictures: Record<string, LabPicture>;
  /** Views of other pages that stand in the list. */
  tools: { name: string; title: string; about: string }[];
}
type LabShort = Pick<LabRecipe, "name" | "title" | "paper" | "figure" | "question">;
interface LabCatalog {
  recipes: LabRecipe[]; methods: MethodCard[]; verifiers: VerifierCard[];
  reason: string; metrics: LabMetric[];
  batch: { name: string; prompts: string; count: number; max_new_tokens: number; repeats: number };
  sets: Record<string, string>; samples: string[]; tasks: Record<string, string>; results: LabListed[];
  recorded: LabListed[]; plotly: string;
  /** Kinds of workers that can be chosen, in words; none on a shared server. */
  workers: Record<string, string>;
}

/** A run to open; ``word`` says more than its task. */
interface LabRun { trace: string; prompt: string; category: string; params?: string; word?: string }
interface LabSpread {
  /** The number that is shown: Σ ÷ Σ over the runs of a pooled quotient, else their mean. */
  value: number | null;
  mean: number | null; se: number | null; low: number | null; high: number | null; n: number;
  /** Of several rounds: the standard deviation of their means. */
  rounds?: number;
  /** As it is shown: one rule for a column. */
  text?: { value: string; se: string; low: string; high: string };
}
interface LabPoint {
  series: string; x: string; y: string; level: boolean; values: Record<string, LabSpread>; runs: LabRun[];
  count: number; failed: number;
}
/** A claim of the paper in these results: ``experiments/findings.py``. */
interface LabFinding {
  text: string; notes: string; mark: "✓" | "✗" | "≈" | "–";
}

/** A table of lines × tasks, ours or a paper's: ``experiments/sheets.py``. ``point`` of a cell is one of the points. */
interface LabSheet { about: string; columns: string[]; rows: LabSheetRow[] }
interface LabSheetRow { name: string; absent: string; cells: LabSheetCell[] }
interface LabSheetCell { text: string; error: string; best: boolean; share: number | null; point: number | null }
/** A metric's tables: ours first. */
interface LabSheets { title: string; sheets: LabSheet[] }
/** A table of text, its first ``words`` columns no numbers: ``specviz/extras/lab/experiments/grids.py``. */
interface LabProfile { title: string; heads: string[]; words: number; rows: string[][] }

/** A batch's tables: ``specviz/extras/lab/experiments/tables.py``. */
interface LabCell {
  text: string; spread: string; count: number; prompts: number; disturbed: number; failed: number; best: boolean;
  partly: string;
  runs: LabRun[];
}
interface LabTableLine { task: string; name: string; prompts: number; cells: LabCell[] }
interface LabTable {
  metric: string; label: string; formula: string; title: string; columns: string[]; lines: LabTableLine[];
  /** What a line's ``prompts`` counts. */
  counts: "prompts" | "turns";
  /** Whether a cell is Σ ÷ Σ over its prompts, not their mean. */
  pooled: boolean;
}
interface LabCheck {
  name: string; lossy: boolean; checked: number; same: number; bugs: number; text: string;
  runs: (LabRun & { at: number | null; verdict: string; repeat: number })[];
}

/** A worker: what it does, for how many seconds, and what it has done. */
interface LabWorker { name: string; state: string; seconds: number; done: number; losses: number }

/** How far an experiment is. */
interface LabProgress {
  id: string; state: LabState; rows: number; about: LabAbout; ahead: number; total: number;
  /** Where workers do it, ``done`` and ``total`` count units; ``failures`` are the latest reasons. */
  progress: {
    done: number; total: number; trains: string; left: string; workers: LabWorker[]; failed: number; failures: string[];
  } | null;
}
/** Results as they are drawn: charts and points of a sweep, tables and checks of a batch. */
interface LabResults extends LabProgress {
  measured: string[]; charts: { title: string; paper: boolean; figure: string }[]; points: LabPoint[];
  columns: { key: string; label: string; unit: string }[]; profiles: LabProfile[]; caption: string;
  sheets: LabSheets[]; verdict: string; findings: LabFinding[];
  formulas: { label: string; formula: string; help: string }[]; names: Record<string, string>; errors: string[];
  failed: number; tables?: LabTable[]; checks?: LabCheck[]; warnings?: string[]; remarks?: string[];
}
interface LabBatchResults extends LabResults {
  tables: LabTable[]; checks: LabCheck[]; warnings: string[]; remarks: string[];
}

/** What the form asks for, as it is typed. */
interface LabForm {
  prompts: string; count: string; max_new_tokens: string; training_steps: string; methods: string[] | null;
  vary: { param: string; values: string }[]; fixed: Record<string, string>; metric: string; temperature: string;
  length: string;
  lines: LabFormLine[] | null; repeats: string; workers: string; on: string;
}
/** A method with its parameters, one line of a batch. */
interface LabFormLine { method: string; params: Record<string, string>; open?: boolean }

interface PageEvents {
  /** What the lab has was changed. */
  lab: undefined;
}
