/* What ``api/places`` answers (../../places/places_page.py). Global. */

/** A replay: queued, running, done, stopped or failed. */
interface ReplayCard {
  id: string; run: string; methods: string[]; state: string; done: number; total: number; words: string; error: string;
  report: PlacesReport | null;
}
interface PlacesAnswer {
  reason: string; methods: { name: string; title: string }[]; chosen: string[]; replay: ReplayCard | null;
}
/** ``Strip`` of decoders/study/look/places.py, and tokens per step by rows. */
interface PlacesReport {
  reach: Record<string, number[]>; steps: number[]; oracle: number[]; choices: string[];
  missing: Record<string, string>; regret: number; alone: Record<string, number>;
  frontier: { rows: number[]; lines: Record<string, number[]> };
}
/** How a strip of so many places is broken into lines. */
interface StripLayout { cell: number; columns: number; lines: number }
