/* The one method that the pages know by name: decoders/names.py. */

/** The method that drafts nothing: every speedup and every check is against it. */
export const BASELINE = "plain";
