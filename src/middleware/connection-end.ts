/**
 * Tells when a handler ends the connection of its request, as request.destroy() and socket.destroy() do. Only who calls tells that from a
 * client that has gone, or from a server that stops: both destroy the socket while the handler still runs.
 */

/** The methods that end a socket, a stream of HTTP/2, or a request. */
const ENDING_METHODS = ["destroy", "destroySoon", "resetAndDestroy", "end", "close"] as const;

/** On a connection, the functions to call when one of these methods is called. Equal in all copies of the package. */
const WATCHERS = Symbol.for("holdfast.connectionWatchers");

type Watcher = () => void;
type Connection = Partial<Record<(typeof ENDING_METHODS)[number], unknown>> & { [WATCHERS]?: Set<Watcher> };

interface WatchedConnection {
  readonly whenEnded: Promise<void>;
  stop(): void;
}

/**
 * Watches until it is stopped.
 * @param connection the socket, or the stream of HTTP/2, or the request; undefined if a test has made the response
 * @param isHandler whether the caller of a method is the handler
 */
export function watchConnection(connection: object | null | undefined, isHandler: () => boolean): WatchedConnection {
  let watcher: Watcher = () => undefined;
  const whenEnded = new Promise<void>((resolve) => {
    watcher = () => {
      if (isHandler()) resolve();
    };
  });
  const watchers = connection ? watchersOf(connection) : undefined;
  watchers?.add(watcher);
  return { whenEnded, stop: () => void watchers?.delete(watcher) };
}

/** Requests follow each other on a connection, and run beside each other: its methods are replaced once. */
function watchersOf(connection: Connection): Set<Watcher> {
  const known = connection[WATCHERS];
  if (known !== undefined) return known;
  const watchers = new Set<Watcher>();
  Object.defineProperty(connection, WATCHERS, { value: watchers });
  for (const name of ENDING_METHODS) {
    const original = connection[name];
    if (typeof original !== "function") continue;
    connection[name] = (...args: unknown[]) => {
      for (const watcher of watchers) watcher();
      return original.apply(connection, args);
    };
  }
  return watchers;
}
