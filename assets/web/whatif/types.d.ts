/* What ``api/whatif`` answers (specviz/pages/whatif/service.py). Global. */

/** One step drafted again, as a trace of its own; ``more``: accepted tokens more than recorded. */
interface Redraft {
  trace: Trace; step: number; recorded: number; accepted: number; more: number; emitted: number; same: boolean;
  ms: number; read_ms: number; notes: string[];
}
/** What is asked: a place of the ranking, or a method with its parameters. */
interface RedraftQuestion { step: number; candidate?: number; method?: string; params?: Record<string, unknown> }
