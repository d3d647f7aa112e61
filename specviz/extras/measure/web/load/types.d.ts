/* The answer of ``api/lengths`` (../../load/lengths_page.py). Global. */

/** A server's policy on runs: ``Replay``; null where ``why`` says that it cannot be replayed. */
interface PolicyReplay {
  policy: string; rule: string; steps: number | null; mean_length: number | null; ms: number | null;
  speedup: number | null; regret: number | null; why: string;
}
interface RunAtBatch {
  batch: number; tokens_per_s: number; plain_tokens_per_s: number; speedup: number; measured: boolean;
}
interface LengthSet {
  method: string; title: string; runs: number; policies: PolicyReplay[]; batches: RunAtBatch[]; why: string;
  tiers: BestLengths | null;
}
interface BestLength {
  batch: number; length: number; speedup: number; break_even_one: number | null; break_even: number | null;
}
/** Chains with the runs' α and c: the best length per batch; by batch, the α from which 1, 2, … tokens pay. */
interface BestLengths {
  alpha: number; cost: number; measured_to: number; best: BestLength[]; vllm: string; sglang: string;
  curve: { batch: number; alpha: (number | null)[] }[];
}
interface LengthsAnswer { sets: LengthSet[]; measured: boolean }
