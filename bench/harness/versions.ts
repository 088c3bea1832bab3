/**
 * The versions of what is measured: rivals as they are installed below bench/, stores and Curator as Debian packages.
 */

import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";

/** Implementations that are packages of npm, with the folders that they are installed in. */
export const NPM_PACKAGES: Readonly<Record<string, string>> = {
  "redlock 4": "redlock",
  "redlock 5 beta": "redlock5",
  "@sesamecare-oss/redlock": "@sesamecare-oss/redlock",
  "redis-semaphore": "redis-semaphore",
  "@verrou/core": "@verrou/core",
  "redlock-universal": "redlock-universal",
  "simple-redis-mutex": "simple-redis-mutex",
  "live-mutex": "live-mutex",
  "async-mutex": "async-mutex",
  "zookeeper (native)": "zookeeper",
  "node-zookeeper-client": "node-zookeeper-client",
  etcd3: "etcd3",
};

const DEBIAN_PACKAGES: Readonly<Record<string, string>> = {
  Curator: "libcurator-recipes-java",
  Redis: "redis-server",
  ZooKeeper: "libzookeeper-java",
  etcd: "etcd-server",
  PostgreSQL: "postgresql-15",
  MariaDB: "mariadb-server-core",
};

/** By the name of the implementation or of the program; what is unknown is left out. */
export type Versions = Readonly<Record<string, string>>;

export function readVersions(): Versions {
  const rivals = Object.entries(NPM_PACKAGES).map(([name, folder]) => [name, readNpmVersion(folder)] as const);
  const programs = Object.entries(DEBIAN_PACKAGES).map(([name, debian]) => [name, readDebianVersion(debian)] as const);
  return Object.fromEntries([...rivals, ...programs].filter(([, version]) => version !== ""));
}

/** "": it is not installed. @param folder below bench/node_modules */
export function readNpmVersion(folder: string): string {
  const manifest = `bench/node_modules/${folder}/package.json`;
  if (!existsSync(manifest)) return "";
  return (JSON.parse(readFileSync(manifest, "utf8")) as { readonly version: string }).version.replace(/^v/, "");
}

/** A field of dpkg-query, not of JavaScript. */
const QUERY_FORMAT = "$" + "{Version}";

/** "5:7.0.15-1~deb12u10" is 7.0.15. */
function readDebianVersion(name: string): string {
  const { stdout, status } = spawnSync("dpkg-query", ["-W", "-f", QUERY_FORMAT, name], { encoding: "utf8" });
  return status === 0 ? (/^(?:\d+:)?([\d.]+)/.exec(stdout)?.[1] ?? "") : "";
}
