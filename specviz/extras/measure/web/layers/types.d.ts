/* What ``api/layers`` answers (../../layers/layers_page.py). Global. */

/** Work: queued, running, done, stopped or failed. */
interface LayersCard {
  id: string; run: string; state: string; done: number; total: number; words: string; error: string;
  report: LayersReport | null;
}
interface LayersAnswer { reason: string; task: LayersCard | null }
/** ``skip_layers`` of ../../layers/skipping.py: per layer the share of places whose first choice stays. */
interface LayersReport { kept: number[]; changed: number[][]; places: number; ms: number }
