/* The words that all folders share: what the server sends of a run, and a run as the views see it. Global: JSDoc says
   `@param {Trace} trace`. Shapes of one folder alone stand in its own types.d.ts. */

// ---- a trace as sent: its tables and its run record stand in trace.d.ts -----------------------------------------------

type NodeStatus = NodeRow["status"];

/** A recorded run, or what there is of one that goes on, as ``api/traces/<id>`` sends it. */
interface Trace extends Tables { schema: "spectrace/1"; run: Run; report?: Report; live?: Live }

/** What Python counted of a run, so that a page counts nothing: decoders/trace/report.py says what each part is. */
interface Report {
  /** Per key the value and the parts of ``Term.worked``. */
  metrics: Record<string, Record<string, number | null>>;
  /** Why a metric cannot be right. */
  doubts?: Record<string, string>;
  /** What has to be known of a metric, or why there is none. */
  notes?: Record<string, string>;
  outcomes: Count[]; routes: Count[];
  drafting: [key: string, ms: number | null][]; verify_ms: number;
  regrets: Regret[];
  oracle?: OracleReport;
  /** Lattices by what followed (``decoders/trace/lattice.py``). */
  lattices?: LatticeReport[];
  /** Acceptance by place in the tree and by who proposed (``decoders/trace/branches.py``). */
  branches: BranchCounts;
  statuses: Record<"accepted" | "rejected" | "unreached" | "own" | "sources" | "forbidden", number>;
  origins: [origin: string, nodes: number, accepted: number][];
  /** How drafted tokens are told apart by their origin. */
  legend?: RunOrigin[];
  columns: Record<string, PlainColumn[]>;
}
interface LatticeReport {
  step: number; positions: number; covered: number; oracle: number; chosen: number; right: number;
}
/** Tokens whose parent stood, and those of them that stood. */
interface PlaceShare { judged: number; accepted: number; share: number | null }
interface BranchCounts {
  depth_rank: (PlaceShare & { depth: number; rank: number })[];
  second_branch: Record<"misses" | "with_sibling" | "sibling" | "with_child" | "child", number>;
  proposed_by: (PlaceShare & { who: string; mask: number })[];
  note: string;
}
/** The replay under a perfect ranking (``decoders/trace/oracle.py``): its steps at least and at most, output tokens written
 * by the end of each, what the ranking cost at most and at least, and both in words; or why there is none. */
type OracleReport =
  | { steps: number; most: number; recorded: number; ends: number[]; cost: number; least: number; branches: boolean; needs: string;
      words: string }
  | { why: string };
/** A step's outcome or route, and the number of such steps. */
type Count = [name: string, steps: number];
/** A column that no view draws in its own way: its values are shown as they are. */
interface PlainColumn { name: string; label: string; help: string; type: "int" | "float" | "bool" | "str" | "any" }

/** The same before the first token: no table yet. */
interface WaitingTrace {
  schema: "spectrace/1"; run: Pick<Run, "id" | "title" | "complete" | "error">; live: Live; tokens?: undefined;
}

/** Where a run that goes on stands; ``seq``: events up to it are in what was sent; ``ahead``: runs before it. */
interface Live { state: "queued" | "running" | "done"; seq: number; ahead: number }

/** Rows of one or more steps, to be appended to a trace. */
type TraceDelta = { [table in keyof Tables]?: Partial<Tables[table]> };

/** One event of ``api/live/<id>``: rows, a new state, or that the trace must be fetched again. */
interface LiveEvent {
  seq: number; delta?: TraceDelta; run?: Partial<Run>; state?: Live["state"]; ahead?: number; reload?: boolean;
  read?: [number, number];
  done?: boolean; stop?: string; error?: string; started?: boolean; unsaved?: string;
}

/** ``asked``: drafted again as it stood at one step (what if, a lesson's question), not a whole run. */
interface Run { asked?: boolean }
/** A run's metrics by key, null where one is not defined. */
type Metrics = Record<string, number | null>;

// ---- a run as the views see it: base/model.js -----------------------------------------------------------------------

type Model = import("specviz/base/model.js").Model;
type Pieces = import("specviz/base/text.js").Pieces;
type Inspector = import("specviz/inspect/inspector.js").Inspector;

/** A position of the text, or (from POOL on) a place in the pool. */
type Position = number;
/** A stretch of positions. */
interface Span { start: Position; stop: Position }
/** Consecutive accepted tokens whose sources are consecutive too. */
interface CopiedRun extends Span { source: Position; step: number }
/** A node of a step's draft tree: ``index`` in the step, ``row`` in the table, ``span``: the source span's number. */
interface TreeNode {
  row: number; index: number; token: number; parent: number; depth: number; origin: string; source: Position;
  /** Whether it stands beside the main chain. */
  beside: boolean;
  draftProb: number | null; prob: number | null; rank: number; status: NodeStatus; reason: string; span: number;
  /** The drafters that proposed it, as a mask; 0: not recorded. */
  who: number;
  /** Whether a logits processor forbids it. */
  forbidden: boolean;
  /** Which of two drafts has it, where one is drawn over the other. */
  draft?: "recorded" | "both" | "other";
}
/** One of the target's first choices after a node. */
interface Choice { token: number; prob: number | null }
/** A place that the method ranked; ``would``: tokens of its offer that equal the output, -1 until the run is over. */
interface Candidate {
  row: number; position: Position; score: number | null; length: number; rank: number; chosen: boolean;
  excluded: string; would: number;
}
/** Everything that is shown of one step. */
interface StepView extends StepRow {
  number: number;
  /** The position behind the last token written. */
  end: Position;
  /** The root's token id. */
  root: number;
  nodes: TreeNode[];
  /** Node → the target's first choices after it, likeliest first. */
  targets: Map<number, Choice[]>;
  /** The accepted nodes. */
  path: TreeNode[];
  /** Index of the last accepted node, 0 (the root) if there is none. */
  last: number;
  /** Source spans used by the tree, numbered from 1. */
  spans: (Span & { number: number })[];
  candidates: Candidate[];
  chosen: Candidate | null;
  best: Candidate | null;
  /** Rejected nodes where the target's own token stands. */
  refused: TreeNode[];
}
/** Tokens that are drawn as one: usually one each; tokens that share a grapheme share a cell. */
interface Cell { start: number; stop: number; text: string }
/** A token's piece of text. */
interface Piece { bytes: Uint8Array; special: boolean; text: string }
/** What a step lost by its ranking: accepted tokens of the chosen and of the best candidate, and their difference. */
interface Regret { step: number; chosen: number; best: number; tokens: number }

// ---- elements: base/dom.js ------------------------------------------------------------------------------------------

/** What an element holds: nodes, texts, lists of them; null, undefined and false are left out. */
type Child = Node | string | number | null | undefined | false | Child[];
/** Attributes and listeners (``onclick``); an attribute that is null or false is left out, true is an empty one. */
type Attributes<Target = Element> = { [name: string]: unknown } & {
  [name in keyof HTMLElementEventMap as `on${name}`]?:
    | ((event: HTMLElementEventMap[name] & { currentTarget: Target }) => unknown)
    | null;
};
/** What happened in a field of a component. */
type FieldEvent<Target = HTMLInputElement> = Event & { currentTarget: Target };
/** An HTML element's name, and its classes behind dots: "p", "p.sv-note.sv-faint". */
type TagName = Tag | `${Tag}.${string}`;
type Tag = keyof HTMLElementTagNameMap;
type ElementOf<Name extends TagName> = HTMLElementTagNameMap[
  Name extends Tag ? Name : Name extends `${infer Its extends Tag}.${string}` ? Its : never
];
/** What a tooltip says: its nodes, made when it is shown. */
type Tip = () => Child[];
/** Where something is in the window. */
type Box = Pick<DOMRect, "left" | "right" | "top" | "bottom" | "width">;
type Tooltip = import("specviz/base/dom.js").Tooltip;
/** The theme's colours and fonts, for a canvas. */
type Colors = Record<
  | "accepted" | "rejected" | "own" | "ghost" | "line" | "faint" | "card" | "source" | "heat" | "pin" | "ink" | "raised"
  | "unreached"
  | "sans" | "mono", string
>;
/** Label and value; left out where the value is empty. */
type Fact = [label: string, value: Child];

// ---- lists of the server --------------------------------------------------------------------------------------------

/** A run in the library, as ``api/runs`` lists it; one that goes on has ``state`` and no numbers yet. */
interface RunRecord {
  id: string; kind: string; title: string; method: string; method_name?: string; created: string; mine: boolean;
  lossless?: boolean; forced?: boolean; model?: string; stop?: string; error?: string; steps?: number; tokens?: number;
  tokens_per_step?: number | null; speedup?: number | null; prompt?: string; tags?: string[]; keep?: boolean; bytes?: number;
  /** Of a lossy run, where they are known: ``decoders/trace/metrics.toml``. */
  other_share?: number; divergence?: number;
  state?: Live["state"];
}

/** One parameter of a method, or one setting: what a form's field is made of. */
interface Control {
  name: string; label: string; help: string; kind: "int" | "float" | "bool" | "choice" | "str" | "text"; default: Setting;
  low: number | null; high: number | null; step: number | null; choices: string[]; optional: boolean;
}

/** The methods and settings that can be run here, as ``api/methods`` lists them; ``reason``: why nothing can run;
    ``opening``: the method of the run that the page opens on. */
interface Catalog {
  methods: MethodCard[]; verifiers?: VerifierCard[]; settings: Control[]; state: string; reason: string; note?: string; opening?: string;
}
interface MethodCard {
  name: string; title: string; summary: string; paper: string; lossless: boolean; missing: string; pooled: boolean;
  /** What it drafts with; "": nothing, or something else. */
  family: "" | "copy" | "ngram" | "draft model" | "heads";
  /** How the part was trained that it drafts with; empty without one. */
  trained: RunTraining;
  controls: Control[];
  /** What its runs leave behind for later ones, in a word; "": nothing. */
  keeps: string;
  /** Whether it drafts nothing; is chosen where nothing is; is compared where nothing is. */
  baseline: boolean; usual: boolean; compared: boolean;
  /** By what it finds an answer's sources, where Attribution may use it; "": it is no such method. */
  signal: string;
  /** Verifiers that can judge its drafts, and whether the output is then lossless; the parameters that its own one reads. */
  judges?: Record<string, boolean>; verifier_params?: string[];
}
/** A rule by which drafted tokens stand; ``greedy_match``: a greedy run has its tokens matched, as by all such rules. */
interface VerifierCard {
  name: string; title: string; source: string; summary: string; lossless: boolean; greedy_match: boolean;
  controls: Control[];
}
/** How much a method keeps of somebody's runs: ``count`` of ``unit`` (a plural), from ``runs`` runs. */
interface KeptAmount { count: number; unit: string; runs: number }

/** What a number means, and the code that makes it; ``worked``: the formula with a run's {parts}, of a metric. */
interface Term { label: string; formula: string; code: string; help: string; worked?: string }

// ---- parts of the page ----------------------------------------------------------------------------------------------

/** What ``mount`` of a part gets: see ``gr.HTML``. */
interface Part {
  element: HTMLElement;
  props: { value: string };
  watch: (name: string, fn: () => void) => void;
  trigger: (event: string) => void;
}

/** Events of the page: name → what is told (base/bus.js). */
interface PageEvents {
  /** The inspector is drawn for the first time. */
  inspector: Inspector;
  /** Another run is asked for: its id. */
  current: string;
  /** The list of runs has changed. */
  runs: RunRecord[];
  /** The server's model is loaded, or another one. */
  model: { state: string; text: string };
  /** The server was asked how it is; null: it did not answer. */
  status: Status | null;
  /** The page's session with the server begins: its name. */
  session: string;
  tab: string;
  /** Back or Forward: please show what the address says. */
  address: URLSearchParams;
  /** Please open this run. */
  open: string;
  /** A run began: its id. */
  started: string;
  /** Please compare these runs: their ids. */
  lanes: string[];
  /** Please run what the form has. */
  run: undefined;
  /** Please show what chosen runs have to say, on "Compare"; raced: as its lanes. */
  look: { ids: string[]; view: "race" | "acceptance" | "difference"; raced: boolean };
  /** Please open the drawer of runs. */
  library: { search?: string } | undefined;
  /** Please open a run's file. */
  file: undefined;
  /** Please stop what runs. */
  stop: undefined;
  /** A run could not begin: the sentence. */
  refused: string;
  /** Please race the run that is shown. */
  race: undefined;
  /** Please show the models to choose from; the focus goes back to this element. */
  models: HTMLElement;
  /** Please connect a server; the focus goes back to this element. */
  connect: HTMLElement;
  /** Please draw a page's view into this element, which has its place. */
  tool: { name: string; element: HTMLElement };
}

/** The one global name, for tinkering in the browser's console and for tests: base/handle.js. */
declare var specviz: object | undefined;
