/* What the shell knows, and what the server tells it of runs and of itself. Global. */

/** The model's state; ``gone`` and ``out`` are said by the page itself. */
interface ModelInfo {
  state: "loading" | "ready" | "failed" | "none" | "gone" | "out";
  text: string;
  name?: string;
  /** How many models were ready so far: another number, another model. */
  number: number;
  /** The model that is being loaded in place of this one. */
  coming: { name: string; text: string } | null;
}

/** A model of ``api/models``: ``specviz.models.Listed``. */
interface ListedModel {
  model: string; name: string; kind: string; size_bytes: number | null; dtype: string; parts: string[] | null;
  notes: string[]; parameters: number | null; memory_bytes: number | null; missing: string;
}

/** ``api/models``. */
interface ModelList extends ModelInfo {
  models: ListedModel[]; used: string; refused: { model: string; text: string } | null;
  /** On which weights the one in use is, and on which ones models can be loaded here. */
  weights: string; choices: string[];
  /** The thing that is made for it in the background, in a clause. */
  pending: string;
}

/** ``api/models/of/<run>``: the model that made a run; ``beside``: it is opened beside the one in use. */
interface MadeWith { same: boolean; name: string; loaded: string; model: string; beside: boolean }

/** What users of this server may do: ``Rules.told``. */
interface Rules { public: boolean; accounts: boolean; [number: string]: number | boolean }

/** ``api/status``. */
interface Status { model: ModelInfo; rules: Rules; user: string; picks: boolean; backends?: Backend[] }

/** One of the processes that do the runs; ``text``: why it is lost, or failed. */
interface Backend { name: string; state: "starting" | "free" | "busy" | "lost" | "failed"; text: string }

/** How full the store is: ``Desk.room``. */
interface Room {
  /** Of ``count`` those that stand in no list: behind results of other pages, or another user's. */
  others: number; count: number; max_count: number; bytes: number; max_bytes: number; problem: string }

/** ``api/runs``. */
interface RunList { runs: RunRecord[]; first: string; room: Room }

/** A run whose events are followed; ``base``: the last event that is drawn. */
interface Feed {
  id: string;
  source: EventSource;
  seq: number;
  state: Live["state"];
  ahead: number;
  /** Tokens of a long prompt that are read, and all of them. */
  read: [number, number] | null;
  base: number;
  tokens: number;
  steps: number;
  loading: number;
  pending: LiveEvent[];
  frame: number;
  over: boolean;
}

/** Where a run is opened. */
interface At { step?: number; pins?: number[] }

/** A view of chosen runs' acceptance, on the page Runs. */
interface RunView { name: string; title: string; order: number; draw: (place: HTMLElement) => unknown }

/** What an annex finds in the runs beside what their list shows. */
interface RunSearch {
  /** What is searched, for the empty field. */
  hint: string;
  /** Looks for words; ``draw`` is called when more is known of them. */
  ask(words: string[], draw: () => void): void;
  /** Whether a run holds a word. */
  holds(id: string, word: string): boolean;
  /** Where it does, below its row; null where that is nowhere. ``show`` opens it at a place. */
  places(id: string, show: (at: At) => void): Node | null;
  /** A sentence on a search that is not complete, or "". */
  note(): string;
}

interface App {
  /** null before the first run is drawn */
  inspector: Inspector | null;
  /** the run that is asked for */
  current: string;
  /** the run that is being fetched to be opened, if any */
  coming: string;
  /** the run that is drawn */
  shown: string;
  /** ms from the navigation to the first view */
  drawn: number;
  /** the run whose attribution somebody asked for last */
  attributed: string;
  tab: string;
  feeds: Map<string, Feed>;
  /** the run whose prompt stands in the editor, where it was started from there */
  held: string;
  /** the run was drawn before the form was there */
  early: boolean;
  /** run → its prompt's key */
  promptOf: Map<string, string>;
  /** runs of this page that go on */
  mine: Set<string>;
  ended: Set<string>;
  runs: RunRecord[];
  room: Room | null;
  rules: Rules | null;
  model: ModelInfo;
  /** Whether one may choose the model. */
  picks: boolean;
  /** what annexes add to the Share menu of a run */
  shares: ((id: string) => Pick<InspectorActions, "figure" | "downloads">)[];
  /** what annexes add to the views of runs' acceptance */
  runViews: RunView[];
  /** the search that an annex adds to the drawer of runs */
  runSearch: RunSearch | null;
  /** fetches what annexes add to rooms, once */
  entries: () => Promise<void>;
  /** the address of a figure of several runs; "" without the annex that draws it */
  figureOfRuns: (ids: string[]) => string;
  /** the open page's name for the server */
  session: () => Promise<string>;
  /** by name, what a page that was opened knows */
  pages: Record<string, object>;
  /** "What if …", once the inspector is drawn; ``reason``: why this run cannot be drafted again, or "" */
  whatif?: { reason: string; toggle(open?: boolean): void; compare(run: string, method: string): void };
  lens?: object;
}
