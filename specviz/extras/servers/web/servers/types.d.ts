/* What the server tells of a connection: specviz.pages.servers.service.Connection.shown. Global. */

interface ServerAcceptance {
  requests: number; tokens: number; drafts: number; drafted: number; accepted: number;
  mean_length: number | null; rate: number | null; by_position: number[]; per_second: number | null;
}

interface ServerConnection {
  id: string; server: string;
  /** The answer behind what was asked for, and how long all of it is. */
  text: string; length: number;
  acceptance: ServerAcceptance;
  /** Runs that arrived. */
  traces: string[];
  note: string; problem: string; done: boolean;
}
