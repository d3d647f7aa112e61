/* A comparison: what the server tells of it (specviz/pages/compare/), and what the page knows of its lanes. Global. */

type Pen = CanvasRenderingContext2D;
type Clock = "time" | "step" | "position";
/** Output tokens [from, to). */
interface TokenRange { from: number; to: number }

/** ``api/compare``: methods at most beside plain decoding, rows of the table of numbers. */
interface CompareOffer { most: number; metrics: RunMetric[]; plotly: string }

/** ``api/compare/start``: a lane per method; one that cannot run says why. */
interface StartedLanes { lanes: { method: string; id?: string; error?: string; place?: string }[] }

/** A lane in a claim's order (specviz/pages/compare/claim.py); ``place``: null where it takes none, for a ``reason``. */
interface LanePlace {
  id: string; place: number | null; bar: number | null; low: number | null; high: number | null; reason: string;
}
/** By one measure: the number above the sentence, and every lane, the first on top. */
interface Claimed { sentence: string; number: string; lanes: LanePlace[] }
/** ``api/compare/claim``; ``stars``: by metric the lanes that are best of the methods. */
interface Claim { time: Claimed; step: Claimed; stars: Record<string, string[]>; repeats: string }
/** ``api/compare/repeats``: how far the repeats of these lanes are. */
interface RepeatsState { over: boolean; count: number; of: number; run: string; text: string }

/** ``api/compare/numbers``, of one run. */
interface LaneNumbers {
  /** Times that it was run, and the median time over the recorded one's. */
  runs: number; pace: number;
  metrics: Metrics;
  /** Why one of them cannot be right. */
  doubts: Record<string, string>;
  /** What has to be known of one of them, or why it is missing. */
  notes: Record<string, string>;
  depths: [depth: number, reached: number, accepted: number][];
  /** Of the steps with a draft. */
  lengths: [accepted: number, steps: number, share: number][];
  /** ms. */
  times: { prefill: number; prepare: number; draft: number; verify: number; commit: number };
  oracle: OracleReport;
}

/** ``api/compare/stretches``: where ``run`` needs fewer forwards than every other run; ``forwards`` by run. */
interface Advantage extends TokenRange { run: string; forwards: Record<string, number>; gain: number }

/** ``api/compare/lens``, of one run: whether it equals plain decoding. */
type LaneCheck =
  | { state: "identical"; tokens: number }
  | { state: "checking" }
  | { state: "unknown"; text: string }
  | LaneDivergence;
interface LaneDivergence {
  state: "differs"; verdict: string; position: number; source: string; plain: number[];
  got: number | null; expected: number | null; got_prob: number | null; expected_prob: number | null;
  gap: number | null; tolerance: number | null; calls: string;
}

/** A run in the comparison. */
interface CompareLane {
  id: string; method: string; state: "waiting" | "running" | "done" | "failed" | "stopped"; error: string;
  /** Runs before it. */
  ahead: number;
  /** Whether it ends with this page. */
  mine: boolean;
  /** Its letter, its number (0: plain decoding) and its colour. */
  mark: string; n: number; color: string;
  /** What it wrote; null before its first answer. */
  lane: import("specviz/compare/lane.js").Lane | null;
  /** Output tokens that agree with the reference. */
  aligned: number;
  /** The last event that is drawn. */
  seq: number;
  source: EventSource | null;
  parts: ReturnType<typeof import("specviz/compare/race.js").laneParts> | null;
  /** Steps done and steps there, as its text is drawn. */
  shown: string;
}
/** One that has written something. */
type DrawnLane = CompareLane & { lane: import("specviz/compare/lane.js").Lane };

/** What a comparison stands in: the app's page (server.js), or one of a static site. */
interface CompareHost {
  trace: (id: string) => Promise<Trace | WaitingTrace>;
  /** What was counted of runs that are over: "numbers", "stretches", "claim", "lens", "repeats". */
  ask: (what: string, ids: string[]) => Promise<any>;
  /** Opens a run at a step on Inspect. */
  inspect: (id: string, step: number) => void;
  /** Another comparison begins, of these runs. */
  begun: (ids: string[]) => void;
  /** The lanes grew. */
  changed: () => void;
  /** All lanes are over. */
  over: () => void;
  /** Whether runs that go on end with this page from now on. */
  adopt: (ids: string[]) => Promise<boolean>;
  stop: () => void;
  /** Has runs that are over repeated for their times; null where nothing can run. */
  repeat: ((ids: string[]) => Promise<RepeatsState>) | null;
  /** The address of the runs' figure; none: "". */
  figure: (ids: string[]) => string;
}

/** What the ruler draws of a lane. */
interface RulerLane {
  lane: import("specviz/compare/lane.js").Lane; color: string; name: string; mark: string; aligned: number;
  oracle?: OracleReport;
}
/** The theme's colours; ``on``: text on a lane's colour. */
type LaneColors = Colors & { ink: string; raised: string; on: string };

/** A method asked for: its parameters as they are typed, and whether one of them is out of range. */
interface WantedLane { method: string; open: boolean; read: () => Record<string, Setting>; wrong: () => boolean }

/** Of ``api/compare/difference``: a step in which one run accepted what the other did not; steps and tokens count from 0. */
interface RunGain {
  step: number; start: number; stop: number; pieces: [string, boolean][]; missed: number;
  causes: Record<string, number>; other_steps: OtherStep[];
}
/** A step of the other run, in which it wrote a token of the gain itself. */
interface OtherStep {
  step: number; drafted: number; accepted: number; rejected: string[]; wrote: string; reason: string;
}
interface RunDifference { agreed: number; tokens: [number, number]; gains: [RunGain[], RunGain[]]; sentence: string }
