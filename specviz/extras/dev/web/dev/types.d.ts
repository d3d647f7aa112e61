/* What ``api/dev`` answers (specviz/pages/dev/service.py). Global. */

/** A rule of the contract, with what is broken of it. */
interface DevRule { rule: string; faults: { words: string; prompt: number | null; details: string }[] }
/** A step of a recorded run, drafted anew; ``accepted`` is null where the method raised. */
interface DevRow {
  run: number; step: number; recorded: number; drafted: number; accepted: number | null; before: number | null;
  against: number | null; change: number | null; why: string; details: string;
}
/** The file as it was saved last; what is not told yet is missing. */
interface DevNews {
  number: number; state: string; file: string; against: string; saves?: number; problem?: string; details?: string;
  method?: { name: string; title: string };
  runs?: { id: string; title: string; steps: number }[];
  rows?: DevRow[]; steps?: number; won?: number; lost?: number; base?: string; ms?: number; scored?: boolean;
  stopped?: string[];
  tokens_per_step?: { now: number | null; before?: number | null; against?: number | null };
  rules?: DevRule[];
  ran?: { id: string; title: string; on: number } | null;
  failed?: string;
}
