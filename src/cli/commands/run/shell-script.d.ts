/** A shell script is imported as its text; see scripts/build.ts. */
declare module "*.sh" {
  const text: string;
  // biome-ignore lint/style/noDefaultExport: the form of esbuild's loader for text
  export default text;
}
