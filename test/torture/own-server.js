// A lock library with a server of its own: torture starts it in the place of its own store.

export { openSubject } from "./no-lock.js";

export async function startStore() {
  return {
    name: "a server of its own",
    url: "tcp://127.0.0.1:1",
    faults: [],
    inject: async () => null,
    close: async () => undefined,
  };
}
