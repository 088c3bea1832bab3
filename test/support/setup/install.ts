// `node build/test/support/setup/install.js SUITE ...`: installs what these suites require. `npm test` starts it, so that the time
// it takes is no suite's.

import { setup } from "./requirements.ts";

for (const name of process.argv.slice(2)) {
  await setup({ name }).catch((error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  });
}
