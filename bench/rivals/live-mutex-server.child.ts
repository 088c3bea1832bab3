/** The server of live-mutex. Arguments: the port, and the file of the package, because it does not run in the project. */

import { pathToFileURL } from "node:url";

interface LiveMutexModule {
  readonly default: { readonly Broker: new (options: object) => { ensure(): Promise<unknown> } };
}

const [port, file] = process.argv.slice(2);
const { default: module } = (await import(pathToFileURL(file as string).href)) as LiveMutexModule;
await new module.Broker({ host: "127.0.0.1", port: Number(port), noDelay: true }).ensure();
