/** Text by lines, for the floors: nothing is bounded or checked. */

/** A listener for chunks of a stream, which hands on each whole line. */
export function splitLines(take: (line: string) => void): (chunk: Buffer) => void {
  let begun = "";
  return (chunk) => {
    const lines = (begun + chunk.toString("utf8")).split("\n");
    begun = lines.pop() ?? "";
    for (const line of lines) take(line);
  };
}
