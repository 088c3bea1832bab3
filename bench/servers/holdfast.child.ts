// Our lock server, with a state folder as `holdfast serve` has.

import { serve } from "../../src/server/serve.ts";
import { answerCalls } from "../harness/calls.ts";

answerCalls({
  listen: async (path: string) => {
    await serve({ listen: `unix:${path}`, state: `${path}.state` });
  },
});
