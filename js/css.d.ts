/** Stylesheets are bundled as text: "nbprof:styles" is every .css file of js/lib and js/views, in that order. */
declare module "nbprof:styles" {
  const text: string;
  export default text;
}
