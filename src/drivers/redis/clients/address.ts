/** Reads the address of a client from its options, for messages. It does not read user names or passwords. */

/** The address of a client. */
export interface ClientAddress {
  /** "host:port", a socket path or a list of hosts; "": unknown. */
  readonly label: string;
  readonly isTls: boolean;
  /** Whether Sentinels name the master. After a fail-over they name another one. */
  readonly isViaSentinel: boolean;
}

interface HostSettings {
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly tls?: unknown;
}

/** The options of ioredis and node-redis that are read, for single servers and Clusters. */
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
