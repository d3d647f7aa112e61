/** A run in the list of a static site. */
interface SiteRun {
  key: string;
  title: string;
  method: string;
  model: string;
  category: string;
  tags: string[];
  prompt: string;
  tokens: number;
  steps: number;
  per_step: number | null;
}

/** What every page of a static site knows; ``outcomes``: the sentence about the runs of a prompt. */
interface SiteRuns {
  title: string;
  runs: SiteRun[];
  outcomes: { [prompt: string]: string };
}
