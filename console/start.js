// Loads the console. If a file of it does not arrive, the page would stay empty, so it says so.

import("./main.js").catch((error) => {
  const text = document.createElement("p");
  text.className = "state";
  text.role = "alert";
  text.textContent = `The console can't be loaded: ${error.message}. It loads again in 3 s.`;
  document.getElementById("main").replaceChildren(text);
  setTimeout(() => location.reload(), 3000);
});
