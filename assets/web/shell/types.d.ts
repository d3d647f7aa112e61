/** What the shell knows, and what the server tells it of runs and of itself. */

import type { Inspector } from "../inspect/inspector.js";
import type { Columns, Live, RunRecord, Trace } from "../types.js";
import type { WhatIf } from "../whatif/page.js";

/** The model's state; ``gone`` and ``out`` are said by the page itself. */
export interface ModelInfo {
  state: "loading" | "ready" | "failed" | "none" | "gone" | "out";
  text: string;
  name?: string;
}

/** What users of this server may do: ``Rules.told``. */
export interface Rules { public: boolean; accounts: boolean; [number: string]: number | boolean }

/** ``api/status``. */
export interface Status { model: ModelInfo; rules: Rules; user: string }

/** How full the store is: ``Desk.room``. */
export interface Room { count: number; max_count: number; bytes: number; max_bytes: number; problem: string }

/** ``api/runs``. */
export interface RunList { runs: ListedRun[]; first: string; room: Room }

/** A row of ``api/runs``; a run that goes on has fewer numbers. */
export interface ListedRun extends RunRecord {
  model?: string;
  created?: string;
  state?: string;
  stop?: string;
  bytes?: number;
}

/** Part of a trace: tables by name, each some columns. */
export type Delta = Record<string, Record<string, any[]>>;

/** An event of ``api/live``. */
export interface LiveEvent {
  seq: number;
  state?: Live["state"];
  ahead?: number;
  delta?: Delta;
  run?: object;
  reload?: boolean;
  done?: boolean;
  started?: boolean;
  stop?: string;
  error?: string;
}

/** A run whose events are followed; ``base``: the last event that is drawn. */
export interface Feed {
  id: string;
  source: EventSource;
  seq: number;
  state: Live["state"];
  ahead: number;
  base: number;
  tokens: number;
  steps: number;
  loading: number;
  pending: LiveEvent[];
  frame: number;
  over: boolean;
}

/** Where a run is opened. */
export interface At { step?: number; pins?: number[] }

export interface App {
  /** null before the first run is drawn */
  inspector: Inspector | null;
  /** the run that is asked for */
  current: string;
  /** the run that is drawn */
  shown: string;
  /** ms from the navigation to the first view */
  drawn: number;
  tab: string;
  feeds: Map<string, Feed>;
  /** run → its prompt's key */
  promptOf: Map<string, string>;
  /** runs of this page that go on */
  mine: Set<string>;
  ended: Set<string>;
  runs: ListedRun[];
  room: Room | null;
  rules: Rules | null;
  model: ModelInfo;
  /** beside the run button */
  caution: { reason: string; lossy: string };
  /** the open page's name for the server */
  session: () => Promise<string>;
  /** by name, what a page that was opened knows */
  pages: Record<string, object>;
  whatif?: WhatIf;
}
