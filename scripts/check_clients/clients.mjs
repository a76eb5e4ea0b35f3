// What a client of Node does with a gateway, as clients.py has it of those of Python.
// Arguments: the client, and the addresses of both gateways; it runs where that is installed.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [client, demo, agent] = process.argv.slice(2);
const here = createRequire(process.cwd() + "/");
const load = (name) => import(pathToFileURL(here.resolve(name)));
const version = JSON.parse(readFileSync(`node_modules/${client}/package.json`)).version;
const messages = [{ role: "user", content: "Compute 12 + 30." }];
const task = "Add 2 and 3, then double the sum.";
const right = /\b(10|42)\b/;
const temperature = 0;

function boxed(text) {
  const answer = text.match(/boxed\{(.*?)\}/)?.[1];
  if (answer !== "42") throw Error(text);
  return answer;
}

async function openai() {
  const { default: OpenAI } = await load("openai");
  const { zodResponseFormat } = await load("openai/helpers/zod");
  const { z } = await load("zod");
  const api = new OpenAI({ baseURL: `${demo}/v1`, apiKey: "none", maxRetries: 0 });
  const response_format = zodResponseFormat(z.object({ value: z.number().int() }), "number");
  return [
    ["zodResponseFormat, an integer", ["demo", "demo:best-of-n"], async (model) => {
      const said = await api.chat.completions.parse({ model, messages, response_format });
      if (!Number.isInteger(said.choices[0].message.parsed.value)) throw Error("no integer");
      return JSON.stringify(said.choices[0].message.parsed);
    }],
    ["stream", ["demo", "demo:best-of-n"], async (model) => {
      let text = "";
      const asked = { model, messages, temperature, stream: true };
      for await (const chunk of await api.chat.completions.create(asked))
        text += chunk.choices[0]?.delta?.content ?? "";
      return boxed(text);
    }],
  ];
}

async function ai() {
  const { generateObject, generateText, stepCountIs, streamText, tool } = await load("ai");
  const { createOpenAI } = await load("@ai-sdk/openai");
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  const { z } = await load("zod");
  const given = (url) => ({ baseURL: `${url}/v1`, apiKey: "none", name: "tts" });
  const compatible = (url) => createOpenAICompatible({ ...given(url), supportsStructuredOutputs: true });
  const schema = z.object({ value: z.number().int() });
  const tools = {
    add: tool({ inputSchema: z.object({ a: z.number(), b: z.number() }), execute: ({ a, b }) => a + b }),
    double: tool({ inputSchema: z.object({ n: z.number() }), execute: ({ n }) => 2 * n }),
  };
  const providers = [
    ["openai-compatible", (url, model) => compatible(url)(model)],
    ["openai, chat", (url, model) => createOpenAI(given(url)).chat(model)],
    ["openai, responses", (url, model) => createOpenAI(given(url))(model)],
  ];
  return providers.flatMap(([name, of]) => [
    [`generateObject, an integer, ${name}`, ["demo", "demo:best-of-n"], async (model) => {
      const { object } = await generateObject({ model: of(demo, model), schema, messages });
      return JSON.stringify(object);
    }],
    [`streamText, ${name}`, ["demo", "demo:best-of-n"], async (model) =>
      boxed(await streamText({ model: of(demo, model), messages, temperature }).text)],
    [`generateText, two tools, ${name}`, ["agent", "agent:best-of-n"], async (model) => {
      const said = { model: of(agent, model), tools, prompt: task, stopWhen: stepCountIs(5) };
      return (await generateText(said)).text;
    }],
  ]);
}

async function promptfoo() {
  return [["eval, default max_tokens", ["demo", "demo:beam-search"], async (model) => {
    const config = { apiBaseUrl: `${demo}/v1`, apiKey: "none" };
    writeFileSync("sums.json", JSON.stringify({
      prompts: ["Compute {{sum}}."],
      providers: [{ id: `openai:chat:${model}`, config }],
      tests: [{ vars: { sum: "12 + 30" }, assert: [{ type: "contains", value: "42" }] }],
    }));
    const words = ["eval", "-c", "sums.json", "-o", "out.json", "--no-cache", "--no-progress-bar"];
    const quiet = { PROMPTFOO_DISABLE_TELEMETRY: "1", PROMPTFOO_DISABLE_UPDATE: "1" };
    const env = { ...process.env, ...quiet, PROMPTFOO_FAILED_TEST_EXIT_CODE: "0" };
    execFileSync("node_modules/.bin/promptfoo", words, { env, stdio: ["ignore", 2, 2] });
    const { stats, results } = JSON.parse(readFileSync("out.json")).results;
    if (stats.errors) throw Error(results[0].error);
    return `${stats.successes} of ${stats.successes + stats.failures} right`;
  }]];
}

for (const [feature, names, ask] of await { openai, ai, promptfoo }[client]()) {
  for (const name of names) {
    const scripted = name.startsWith("agent");
    const found = { passed: false };
    try {
      found.result = await ask(name);
      found.passed = !scripted || right.test(found.result);
    } catch (error) {
      console.error(error);
      found.result = String(error);
    }
    const [, kind = "plain"] = name.split(":");
    const models = scripted ? "scripted model" : "demo pair";
    const said = { client: `${client} (Node)`, version, feature, kind, models, ...found };
    console.log(JSON.stringify({ ...said, result: found.result.slice(0, 200) }));
  }
}
