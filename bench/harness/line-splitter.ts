/** Text by lines, for the floors: nothing is bounded or checked. */

/** A listener for chunks of a stream, which hands on each whole line. */
export function splitLines(onLine: (line: string) => void): (chunk: Buffer) => void {
  let partialLine = "";
  return (chunk) => {
    const lines = (partialLine + chunk.toString("utf8")).split("\n");
    partialLine = lines.pop() ?? "";
    for (const line of lines) onLine(line);
  };
}
