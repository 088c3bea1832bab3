import { afterEach, beforeEach } from "vitest";

/** In tests where errors are made by the million: where each was thrown is of no interest, and takes most of the time. */
export function disableStackTraces(): void {
  const frames = Error.stackTraceLimit;
  beforeEach(() => {
    Error.stackTraceLimit = 0;
  });
  afterEach(() => {
    Error.stackTraceLimit = frames;
  });
}
