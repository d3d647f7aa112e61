/** The module that ``specviz/views/web.py`` makes of ``specviz/views/terms.py``. */
declare module "specviz/generated/terms.js" {
  /** Key of a number → what it means. */
  export const terms: Record<string, Term>;
  /** Route → the code that verifies, where the run's record does not say. */
  export const verified: Record<string, string>;
  /** What is to be known of every number of another rule or draft on a recorded run. */
  export const visited: string;
  /** How specviz is cited, as BibTeX. */
  export const citation: string;
}
