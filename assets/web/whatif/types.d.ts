/* What ``api/whatif`` answers (specviz/pages/whatif/service.py). Global. */

/** One step drafted again, as a trace of its own; ``more``: accepted tokens more than recorded. */
interface Redraft {
  trace: Trace; step: number; recorded: number; accepted: number; more: number; emitted: number; same: boolean;
  ms: number; read_ms: number; notes: string[];
  /** Its draft under every verifier; null where nothing was drafted. */
  judged: { rules: JudgedCard[]; step: JudgedStep } | null;
}
/** What is asked: a place of the ranking, or a method with its parameters. */
interface RedraftQuestion { step: number; candidate?: number; method?: string; params?: Record<string, unknown> }

/** A token through the layers, the embedding first: ``decoders.study.look.lens.Course``. */
interface LensCourse { token: number; probs: number[]; ranks: number[] }
/** What ``api/whatif/<run>/lens`` answers: ``decoders.study.look.lens.Lens``. */
interface LensCourses {
  step: number; node: number; position: number; layers: number; drafted: LensCourse; own: LensCourse;
  tops: [token: number, prob: number][]; decided: number | null; settled: number | null; apart: number; ms: number;
  read_ms: number; limits: string; pieces: Trace["pieces"];
}
/** A line of its chart: whose it is (by what became of the drafted token, or the target's own), and its words. */
interface LensLine { name: NodeStatus | "own"; words: string; course: LensCourse }
