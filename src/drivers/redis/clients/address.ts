/** Where a client goes, as far as its options tell: for messages. Of users and passwords nothing is looked at. */

/** Where a client goes. */
export interface ClientAddress {
  /** "host:port", or what stands for it; "": not known. */
  readonly label: string;
  readonly isTls: boolean;
  /** Do Sentinels name the server? They may name another one soon. */
  readonly isViaSentinel: boolean;
}

interface HostSettings {
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly tls?: unknown;
}

/** What ioredis and node-redis have of it, single or Cluster. */
interface ConfiguredClient {
  readonly options?: HostSettings & {
    readonly socket?: HostSettings;
    readonly name?: unknown;
    readonly sentinels?: readonly HostSettings[] | null;
    readonly redisOptions?: HostSettings;
  };
  readonly startupNodes?: readonly unknown[];
}

export function readAddress(client: object): ClientAddress {
  const { options = {}, startupNodes } = client as ConfiguredClient;
  const { socket = {}, sentinels, redisOptions = {} } = options;
  const isTls = [options.tls, socket.tls, redisOptions.tls].some(
    (tls) => tls !== undefined && tls !== false && tls !== null,
  );
  const isViaSentinel = Array.isArray(sentinels);
  if (isViaSentinel)
    return { label: `${String(options.name)} through Sentinels at ${formatHosts(sentinels)}`, isTls, isViaSentinel };
  const label =
    startupNodes === undefined ? formatHosts([options]) || formatHosts([socket]) : formatHosts(startupNodes);
  return { label, isTls, isViaSentinel };
}

function formatHosts(hosts: readonly unknown[]): string {
  return hosts
    .map((entry) => {
      const { host, port, path } = ((typeof entry === "object" ? entry : null) ?? {}) as HostSettings;
      if (typeof path === "string") return path;
      return typeof host === "string" && typeof port === "number" ? `${host}:${port}` : "";
    })
    .filter((name) => name !== "")
    .join(",");
}
