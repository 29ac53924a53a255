// Built-ins of many uses under names that the bundler may shorten: esbuild puts these in the place of "Math.max" and the like.
const { abs, ceil, floor, max, min, round } = Math;
const { isFinite: finite, isNaN: nan, NaN: missing, POSITIVE_INFINITY: most, NEGATIVE_INFINITY: least } = Number;
const { isArray } = Array;
const { entries } = Object;

export {
  abs as "Math.abs",
  ceil as "Math.ceil",
  entries as "Object.entries",
  finite as "Number.isFinite",
  floor as "Math.floor",
  isArray as "Array.isArray",
  least as "Number.NEGATIVE_INFINITY",
  max as "Math.max",
  min as "Math.min",
  missing as "Number.NaN",
  most as "Number.POSITIVE_INFINITY",
  nan as "Number.isNaN",
  round as "Math.round",
};
