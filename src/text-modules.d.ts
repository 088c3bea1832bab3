/** Files in other languages are imported as texts: see scripts/text-modules.ts. */

declare module "*.sh" {
  const text: string;
  export default text;
}

declare module "*.c" {
  const text: string;
  export default text;
}

/** Without comments. `splitStatements()` separates several statements. */
declare module "*.sql" {
  const text: string;
  export default text;
}

/** With what it includes, without comments; `sha`: its digest, by which Redis knows it. */
declare module "*.lua" {
  const script: { readonly sha: string; readonly text: string };
  export default script;
}
