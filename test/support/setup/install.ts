// `node build/test/support/setup/install.js SUITE ...`: installs what these suites require. `npm test` starts it, so that the time
// it takes is no suite's.

import { installFoldersOf, setup } from "./requirements.ts";

const names = process.argv.slice(2);
await installFoldersOf(names);
for (const name of names) {
  await setup({ name }).catch((error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  });
}
