/** A plugin of Vitest: a shell script is imported as its text, as in the build (scripts/build.ts). */
export const shellScriptText = {
  name: "shell script as text",
  transform: (code: string, path: string): string | null =>
    path.endsWith(".sh") ? `export default ${JSON.stringify(code)};` : null,
};
