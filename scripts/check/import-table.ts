// Which folder may import which. Imports of types count too, except types of spi/, which everyone may use.

import ts from "typescript";
import { readPackageEntries } from "./package-entries.ts";
import type { ImportEdge, SourceTree } from "./source-tree.ts";
import { findDeadTargets, formatLocation, isWithin, listAllImports } from "./source-tree.ts";

/** What every folder may use, drivers and the command line included: no knowledge of locks but the reference's form. */
const SHARED: readonly string[] = ["src/util/", "src/os/", "src/errors.ts", "src/protocol/lock-reference.ts"];
const DRIVER_IMPORTS: readonly string[] = [
  "src/spi/",
  "src/claim/lease-deadline.ts",
  "src/claim/lease-shares.ts",
  "src/lock-table/admission.ts",
  "src/lock-table/token-rule.ts",
  "src/drivers/call-timeouts.ts",
  "src/drivers/revision-tokens.ts",
  "src/drivers/connect-timeout.ts",
  "src/drivers/data-loss-guard.ts",
  "src/drivers/missing-library.ts",
  "src/drivers/push-probe.ts",
  "src/drivers/recent-releases.ts",
  "src/drivers/reply-codec.ts",
  "src/drivers/warnings.ts",
  ...SHARED,
];

/**
 * What our own command line needs besides what the package exports: references and sessions are no public matter, and it
 * starts faster when it loads only what it uses.
 */
const CLI_IMPORTS: readonly string[] = [
  "src/client/",
  "src/claim/lease-shares.ts",
  "src/spi/",
  "src/drivers/server/",
  "src/protocol/",
  ...SHARED,
];

/** What all of the server may use: its lowest files, and what knows nothing of a server. */
const SERVER_IMPORTS: readonly string[] = [
  "src/server/error-codes.ts",
  "src/server/limits.ts",
  "src/server/logger.ts",
  "src/server/request-error.ts",
  "src/server/time-slicer.ts",
  "src/auth/",
  "src/protocol/",
  "src/spi/",
  "src/lock-table/",
  ...SHARED,
];

/** The folders of the server, and the files beside them, from the lowest to the highest: none imports one that comes later. */
const SERVER_LAYERS: readonly ServerLayer[] = [
  { path: "storage/", may: [] },
  { path: "runs/", may: ["storage/"] },
  { path: "session/", may: ["runs/"] },
  { path: "events/", may: ["session/"] },
  { path: "local/", may: ["storage/", "runs/", "session/", "events/"] },
  { path: "connection/", may: ["session/", "events/"] },
  { path: "service.ts", may: ["session/", "connection/"] },
  { path: "status.ts", may: ["session/", "connection/"] },
  {
    path: "compose.ts",
    may: ["storage/", "runs/", "session/", "events/", "local/", "connection/", "service.ts", "status.ts"],
  },
  { path: "ownership-monitor.ts", may: [] },
  { path: "net/", may: ["connection/", "service.ts", "ownership-monitor.ts"] },
  { path: "in-process.ts", may: ["service.ts"], outside: ["src/net/"] },
  { path: "config/", may: ["storage/", "local/", "status.ts", "net/"] },
  {
    path: "server.ts",
    may: ["storage/", "runs/", "status.ts", "compose.ts", "ownership-monitor.ts", "in-process.ts", "net/", "config/"],
    loads: ["src/gateway/"],
  },
];

type ServerLayer = {
  /** A folder, or a file beside the folders, of src/server/. */
  readonly path: string;
  /** The layers that it may import, all of them earlier in the list. */
  readonly may: readonly string[];
  /** What it may load with import(). */
  readonly loads?: readonly string[];
  /** What else it may import, outside of src/server/. */
  readonly outside?: readonly string[];
};

type ImportRow = {
  /** A file, or a folder when it ends with a slash. The first row that fits a file holds for it. */
  readonly files: readonly string[];
  /** Files and folders it may import, besides its own folder. */
  readonly may: readonly string[];
  /** Files and folders it may load with `import()`. */
  readonly mayLoad?: readonly string[];
};

/** util < os, spi < claim, lock-table, protocol, net < client, drivers < server, conformance < cli. */
const IMPORT_TABLE: readonly ImportRow[] = [
  { files: ["src/errors.ts", "src/text-modules.d.ts"], may: [] },
  { files: ["src/protocol/lock-reference.ts"], may: ["src/spi/", ...SHARED] },
  { files: ["src/util/"], may: ["src/errors.ts"] },
  { files: ["src/os/"], may: ["src/util/", "src/errors.ts"] },
  // The entry for authors of drivers: the contract, and the rules of the lock table that they need.
  {
    files: ["src/spi/index.ts"],
    may: ["src/lock-table/admission.ts", "src/lock-table/token-rule.ts", "src/util/ids.ts"],
  },
  { files: ["src/spi/"], may: ["src/errors.ts"] },
  { files: ["src/lock-table/"], may: ["src/util/", "src/spi/"] },
  { files: ["src/claim/"], may: ["src/util/", "src/spi/", "src/errors.ts"] },
  { files: ["src/protocol/"], may: ["src/spi/"] },
  { files: ["src/net/"], may: ["src/errors.ts", "src/util/", "src/os/"] },
  // The memory driver is the lock table with a clock.
  { files: ["src/drivers/memory.ts"], may: [...DRIVER_IMPORTS, "src/lock-table/", "src/drivers/memory-store.ts"] },
  { files: ["src/drivers/memory-store.ts"], may: [...DRIVER_IMPORTS, "src/lock-table/"] },
  { files: ["src/drivers/memory-from-url.ts"], may: [...DRIVER_IMPORTS, "src/drivers/memory.ts"] },
  // The server driver speaks the server's protocol.
  { files: ["src/drivers/server/"], may: [...DRIVER_IMPORTS, "src/protocol/", "src/net/"] },
  { files: ["src/drivers/cluster-url.ts"], may: [...SHARED, "src/net/tls.ts"] },
  // Clients of a store, which know nothing of locks.
  {
    files: ["src/drivers/etcd/client/", "src/drivers/zookeeper/client/"],
    may: ["src/drivers/cluster-url.ts", "src/net/", ...SHARED],
  },
  {
    files: ["src/drivers/etcd/", "src/drivers/zookeeper/"],
    may: [
      ...DRIVER_IMPORTS,
      "src/drivers/cluster-checks.ts",
      "src/drivers/cluster-options.ts",
      "src/drivers/cluster-url.ts",
      "src/net/",
    ],
  },
  { files: ["src/drivers/sql/"], may: [...DRIVER_IMPORTS, "src/net/"] },
  // Stores of the document driver.
  {
    files: ["src/drivers/nats/", "src/drivers/dynamodb/", "src/drivers/s3/"],
    may: [
      ...DRIVER_IMPORTS,
      "src/drivers/document/",
      "src/drivers/aws/",
      "src/drivers/conditional-write-check.ts",
      "src/drivers/document-store-url.ts",
    ],
  },
  { files: ["src/drivers/document/"], may: [...DRIVER_IMPORTS, "src/lock-table/"] },
  {
    files: ["src/drivers/conditional-write-check.ts", "src/drivers/document-store-url.ts"],
    may: [...DRIVER_IMPORTS, "src/drivers/document/"],
  },
  { files: ["src/drivers/"], may: DRIVER_IMPORTS },
  // The one place that knows the built-in drivers, and only loads them on demand.
  {
    files: ["src/client/driver-url.ts"],
    may: ["src/spi/", ...SHARED],
    mayLoad: ["src/drivers/", "src/net/"],
  },
  { files: ["src/client/"], may: ["src/claim/", "src/spi/", "src/wrapping/", "src/leader/election.ts", ...SHARED] },
  { files: ["src/wrapping/", "src/leader/"], may: ["src/client/", ...SHARED] },
  // Fencing runs in transactions of the user, over the adapters of the SQL drivers.
  {
    files: ["src/fencing/"],
    may: [
      "src/client/lock.ts",
      "src/drivers/sql/clients/",
      "src/drivers/sql/schema.ts",
      "src/drivers/sql/advisory/lock-number.ts",
      "src/drivers/etcd/client/messages.ts",
      "src/drivers/etcd/names.ts",
      "src/drivers/revision-tokens.ts",
      ...SHARED,
    ],
  },
  {
    files: ["src/optimistic/"],
    may: ["src/drivers/sql/clients/types.ts", "src/fencing/handles.ts", "src/fencing/database-errors.ts", ...SHARED],
  },
  // Middleware uses the library as its users do, and shares its module with them.
  {
    files: ["src/middleware/"],
    may: ["src/index.ts", "src/client/options.ts", "src/wrapping/key-template.ts", ...SHARED],
  },
  { files: ["src/nestjs/"], may: ["src/index.ts", "src/cron/", "src/wrapping/wrap.ts", ...SHARED] },
  // Jobs use the locks that a user passes.
  { files: ["src/cron/"], may: ["src/client/lock.ts", "src/client/locks.ts", ...SHARED] },

  // Spans and metrics of a client, from its events.
  {
    files: ["src/opentelemetry/"],
    may: ["src/client/locks.ts", "src/client/lock.ts", "src/client/events.ts", ...SHARED],
  },
  // What lists show, for the command line and for the pages of the dashboard: pure functions of claims as users see them.
  { files: ["src/listing/"], may: ["src/spi/claim-info.ts"] },
  // The pages, which run in a browser: of the rest only what is pure.
  { files: ["src/dashboard/"], may: ["src/listing/", "src/util/duration.ts", "src/gateway/dashboard/view-types.ts"] },
  // Accounts and their rights, of the server and of a gateway.
  { files: ["src/auth/"], may: [...SERVER_IMPORTS] },
  // A client of the library, as the command line is. It listens with what the server listens with.
  {
    files: ["src/gateway/"],
    may: [
      "src/client/",
      "src/auth/",
      "src/drivers/server/driver.ts",
      "src/drivers/server/address.ts",
      "src/drivers/server/admin-connection.ts",
      "src/net/",
      "src/protocol/",
      "src/spi/",
      "src/lock-table/events.ts",
      ...[
        "error-codes.ts",
        "limits.ts",
        "logger.ts",
        "request-error.ts",
        "config/port-config.ts",
        "config/reload.ts",
        "events/",
        "net/",
        "service.ts",
        "status.ts",
      ].map((path) => `src/server/${path}`),
      "src/server/connection/connection-limiter.ts",
      "src/server/connection/connection.ts",
      ...SHARED,
    ],
  },
  { files: SERVER_IMPORTS.filter((path) => path.startsWith("src/server/")), may: SERVER_IMPORTS },
  ...SERVER_LAYERS.map(({ path, may, loads = [], outside = [] }) => ({
    files: inServer([path]),
    may: [...SERVER_IMPORTS, ...inServer(may), ...outside],
    mayLoad: loads,
  })),
  {
    files: ["src/conformance/"],
    may: [
      "src/spi/",
      "src/lock-table/",
      "src/client/",
      "src/testing/chaos/",
      "src/testing/delegate.ts",
      "src/testing/random.ts",
      ...SHARED,
    ],
  },
  // Another API over what the package exports.
  { files: ["src/web-locks/"], may: ["src/client/lock.ts", "src/client/locks.ts", ...SHARED] },
  // Locks for the tests of users: a client over the memory driver, with the faults of the chaos driver.
  {
    files: ["src/testing/"],
    may: ["src/spi/", "src/client/", "src/drivers/memory.ts", "src/drivers/memory-store.ts", ...SHARED],
    // so that it is there when time stands still
    mayLoad: ["src/leader/leader.ts", "src/leader/term.ts"],
  },
  // Locks under faults: over the library, as its users have it.
  {
    files: ["src/torture/"],
    may: ["src/client/", "src/testing/random.ts", "src/testing/until.ts", "src/protocol/handshake.ts", ...SHARED],
  },
  {
    files: ["src/cli/"],
    may: [
      "src/torture/",
      "src/server/",
      "src/auth/",
      "src/gateway/",
      "src/listing/",
      ...CLI_IMPORTS,
      ...exportedSources(),
    ],
  },
  { files: ["src/index.ts"], may: ["src/client/", "src/spi/", "src/wrapping/", "src/leader/", ...SHARED] },
];

export function importTable(sourceTree: SourceTree): string[] {
  const faults = listAllImports(sourceTree).flatMap((edge) => {
    if (!edge.relative || isAllowedImport(edge)) return [];
    return [`${edge.from}:${edge.line} may not import ${edge.to}${edge.typeOnly ? " (not even its types)" : ""}`];
  });
  for (const path of sourceTree.keys()) {
    if (findRow(path) === undefined) faults.push(`${path}: its folder has no row in scripts/check/import-table.ts`);
  }
  return [...faults, ...findUpwardLayers(), ...findNonReexports(sourceTree.get("src/index.ts"))];
}

export function deadImportRows(sourceTree: SourceTree): string[] {
  const targets = IMPORT_TABLE.flatMap(({ files, may, mayLoad = [] }) => [...files, ...may, ...mayLoad]);
  return findDeadTargets(sourceTree.keys(), targets, "scripts/check/import-table.ts");
}

function isAllowedImport({ from, to, typeOnly, dynamic }: ImportEdge): boolean {
  if (typeOnly && to.startsWith("src/spi/")) return true;
  const own = folderOf(from);
  if (own !== undefined && to.startsWith(own)) return true;
  const row = findRow(from);
  const may = dynamic ? [...(row?.may ?? []), ...(row?.mayLoad ?? [])] : (row?.may ?? []);
  return may.some((target) => isWithin(to, target));
}

function findRow(path: string): ImportRow | undefined {
  return IMPORT_TABLE.find((row) => row.files.some((target) => isWithin(path, target)));
}

/** "src/claim/", "src/drivers/redis/"; nothing for a file that stands alone in src/, src/drivers/ or src/server/. */
function folderOf(path: string): string | undefined {
  return /^src\/(?:(?:drivers|server)\/[^/]+\/|(?!drivers\/|server\/)[^/]+\/)/.exec(path)?.[0];
}

function inServer(paths: readonly string[]): string[] {
  return paths.map((path) => `src/server/${path}`);
}

/** Layers that name themselves or a later one: without them, no circle of folders can arise. */
function findUpwardLayers(): string[] {
  const names = SERVER_LAYERS.map(({ path }) => path);
  return SERVER_LAYERS.flatMap(({ path, may }, index) =>
    may
      .filter((other) => !names.slice(0, index).includes(other))
      .map((other) => `scripts/check/import-table.ts: src/server/${path} may import no later layer, such as ${other}`),
  );
}

function exportedSources(): string[] {
  return readPackageEntries().flatMap((entry) => (entry.name.startsWith("bin ") ? [] : [entry.source]));
}

function findNonReexports(index: ts.SourceFile | undefined): string[] {
  const others = index?.statements.filter(
    (statement) => !ts.isExportDeclaration(statement) || statement.moduleSpecifier === undefined,
  );
  return (others ?? []).map((statement) => `${formatLocation(statement)} index.ts may only re-export`);
}
