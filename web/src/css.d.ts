/** Style sheets that a script adds to the document: esbuild gives their text. */
declare module "*.css" {
  const text: string;
  export default text;
}
