/* What ``api/places`` answers (../../places/places_page.py). Global. */

interface ReplayCard extends StagedCard<PlacesReport> { methods: string[] }
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
