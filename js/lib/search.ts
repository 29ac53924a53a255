/** The first i in low…high for which `fits` holds, high if it does for none; `fits` is false, then true. */
export function lowest(high: number, fits: (i: number) => boolean, low = 0): number {
  let end = high;
  let at = low;
  while (at < end) {
    const middle = (at + end) >> 1;
    if (fits(middle)) end = middle;
    else at = middle + 1;
  }
  return at;
}
