"use strict";

// Runs scripts in the engine. `simulator/src/lib.rs` describes the functions of the module.
(() => {
  const bytes = () => Uint8Array.from(atob(simulator.wasm), (letter) => letter.charCodeAt(0));
  // One compilation serves all instances.
  const compiled = WebAssembly.compile(bytes());
  let instance = null;

  const memory = (address, length) => new Uint8Array(instance.exports.memory.buffer, address, length);

  // Runs a script. Returns a step for each command that has run, and the command that could not run with its line.
  simulator.run = async (source) => {
    instance ??= await WebAssembly.instantiate(await compiled);
    const engine = instance.exports;
    const script = new TextEncoder().encode(source);
    memory(engine.script(script.length), script.length).set(script);
    let hasEnded = false;
    try {
      engine.run();
      hasEnded = true;
    } catch (trap) {
      if (!(trap instanceof WebAssembly.RuntimeError)) throw trap;
    }
    const lines = new TextDecoder().decode(memory(engine.output(), engine.output_length())).split("\n").filter(Boolean).map((line) => JSON.parse(line));
    // An instance that has trapped is not used again.
    if (!hasEnded) instance = null;
    const error = lines.find((line) => "error" in line) ?? null;
    return { steps: lines.filter((line) => !("error" in line)), error };
  };
})();
