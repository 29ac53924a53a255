/** The first i in low…high for which `fits` holds, high if it does for none; `fits` is false, then true. */
export function lowest(high: number, fits: (i: number) => boolean, low = 0): number {
  let end = high;
  let index = low;
  while (index < end) {
    const middle = (index + end) >> 1;
    if (fits(middle)) end = middle;
    else index = middle + 1;
  }
  return index;
}
