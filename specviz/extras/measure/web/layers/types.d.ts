/* What ``api/layers`` answers (../../layers/layers_page.py). Global. */

type LayersCard = StagedCard<LayersReport>;
interface LayersAnswer { reason: string; cost: string; task: LayersCard | null }
/** ``skip_layers`` of ../../layers/skipping.py: per layer the share of places whose first choice stays, as far as known. */
interface LayersReport { kept: number[]; changed: number[][]; places: number; tokens: number; ms: number }
