// Loads the console. If a file is missing, the page says so, and loads again later.

import("./main.js").catch(async (error) => {
  const text = document.createElement("p");
  text.className = "state";
  text.role = "alert";
  text.textContent = `The console can't be loaded: ${error.message}`;
  document.getElementById("main").replaceChildren(text);
  for (let wait = 3000; error instanceof TypeError; wait *= 2) {
    await new Promise((resolve) => { setTimeout(resolve, wait); });
    if (await fetch("main.js").then(({ ok }) => ok, () => false)) return location.reload();
  }
});
