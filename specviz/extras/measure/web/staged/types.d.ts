/* What work on a run in stages answers (../../run_work.py). Global. */

/** Work: queued, running, done, stopped or failed; ``waits``: for which page's work. */
interface StagedCard<Report = unknown> {
  id: string; run: string; state: string; done: number; total: number; words: string; waits: string; error: string;
  report: Report | null;
}
