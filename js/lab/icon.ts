import { LabIcon } from "@jupyterlab/ui-components";

/** Bars of a step, as the dashboard draws them. */
export const icon = new LabIcon({
  name: "nbprof:profile",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">' +
    '<g class="jp-icon3 jp-icon-selectable" fill="#616161"><rect x="1" y="3" width="9" height="3" rx="1"/>' +
    '<rect x="4" y="7" width="11" height="3" rx="1"/><rect x="2" y="11" width="6" height="3" rx="1"/></g></svg>',
});

/** A recording of what runs elsewhere. */
export const recordIcon = new LabIcon({
  name: "nbprof:record",
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">' +
    '<path class="jp-icon3" fill="#616161" fill-rule="evenodd" ' +
    'd="M8 1.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13Zm0 1.5a5 5 0 1 0 0 10 5 5 0 0 0 0-10Zm0 2a3 3 0 1 1 0 6 3 3 0 0 1 0-6Z"/></svg>',
});
