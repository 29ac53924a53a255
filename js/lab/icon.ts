import { LabIcon } from "@jupyterlab/ui-components";

/** Bars of a step, as the dashboard draws them. */
export const icon = new LabIcon({
  name: "nbprof:profile",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">' +
    '<g class="jp-icon3" fill="#616161"><rect x="1" y="3" width="9" height="3" rx="1"/>' +
    '<rect x="4" y="7" width="11" height="3" rx="1"/><rect x="2" y="11" width="6" height="3" rx="1"/></g></svg>',
});
