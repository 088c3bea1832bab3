/** Where a client goes, as far as its options tell: for messages. Of users and passwords nothing is looked at. */

/** Where a client goes. */
export interface Address {
  /** "host:port", or what stands for it; "": not known. */
  readonly place: string;
  readonly isTls: boolean;
  /** Do Sentinels name the server? They may name another one soon. */
  readonly isNamed: boolean;
}

interface Place {
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly tls?: unknown;
}

/** What ioredis and node-redis have of it, single or Cluster. */
interface Configured {
  readonly options?: Place & {
    readonly socket?: Place;
    readonly name?: unknown;
    readonly sentinels?: readonly Place[] | null;
    readonly redisOptions?: Place;
  };
  readonly startupNodes?: readonly unknown[];
}

export function addressOf(client: object): Address {
  const { options = {}, startupNodes } = client as Configured;
  const { socket = {}, sentinels, redisOptions = {} } = options;
  const isTls = [options.tls, socket.tls, redisOptions.tls].some(
    (tls) => tls !== undefined && tls !== false && tls !== null,
  );
  const isNamed = Array.isArray(sentinels);
  if (isNamed) return { place: `${String(options.name)} by Sentinels at ${placesOf(sentinels)}`, isTls, isNamed };
  const place = startupNodes === undefined ? placesOf([options]) || placesOf([socket]) : placesOf(startupNodes);
  return { place, isTls, isNamed };
}

function placesOf(places: readonly unknown[]): string {
  return places
    .map((one) => {
      const { host, port, path } = ((typeof one === "object" ? one : null) ?? {}) as Place;
      if (typeof path === "string") return path;
      return typeof host === "string" && typeof port === "number" ? `${host}:${port}` : "";
    })
    .filter((name) => name !== "")
    .join(",");
}
