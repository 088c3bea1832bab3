export function document(version: string): object {
  return { openapi: "3.1.0", info: { title: "Holdfast", version } };
}
