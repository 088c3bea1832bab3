/** Repeats a request while the page is visible. */

/** Asks once, and returns the time until the next request. It does not throw. */
export type PollStep = (signal: AbortSignal) => Promise<number>;

/** Begins at once. Returns what ends it. */
export function startPolling(step: PollStep): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let running: AbortController | null = null;

  const stop = (): void => {
    if (timer !== null) clearTimeout(timer);
    running?.abort();
    timer = null;
    running = null;
  };
  const run = async (): Promise<void> => {
    const controller = new AbortController();
    running = controller;
    const delayMs = await step(controller.signal);
    if (controller.signal.aborted) return;
    timer = setTimeout(() => void run(), delayMs);
  };
  const adapt = (): void => {
    stop();
    if (!document.hidden) void run();
  };
  document.addEventListener("visibilitychange", adapt);
  adapt();
  return () => {
    document.removeEventListener("visibilitychange", adapt);
    stop();
  };
}
