#!/usr/bin/env bash
# Checks clients/java: compiles it with all warnings, runs the tests and the examples of its modules, and the scenarios of all clients. With --all, also
# with the oldest and the newest Jackson, with the newest JDK of the machine, with Spring Boot 4, with an informer of fabric8 on a queue, the documentation
# of the classes, and a module that gets the packages from the file of a release. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary
DELTAQ_BIN=$(realpath "$binary")
export DELTAQ_BIN

release_of() { "$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'; }

if ! command -v mvn > /dev/null || ! command -v javac > /dev/null; then
    echo "Maven and a JDK are missing: scripts/setup.sh installs default-jdk-headless and maven" >&2
    exit 1
fi
JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
export JAVA_HOME
if [ "$(release_of "$JAVA_HOME")" -lt 17 ]; then
    echo "$JAVA_HOME is older than Java 17" >&2
    exit 1
fi
# The newest JDK, which may be the same.
newest=$JAVA_HOME
for folder in /usr/lib/jvm/*/; do
    if [ -x "$folder/bin/javac" ] && [ "$(release_of "$folder")" -gt "$(release_of "$newest")" ]; then newest=${folder%/}; fi
done

log=$work/maven.log
# Programs that end soon are faster without the slower compiler of the virtual machine, and with one thread for garbage.
short=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1)
export MAVEN_OPTS="${short[*]}"
# Runs Maven in clients/java, and prints its output if it fails, or the results of its tests.
maven() {
    # The class path of the scenarios has what this build depends on, and nothing of the one before.
    rm -rf target/java/deltaq-scenarios/lib
    (cd clients/java && mvn --batch-mode --no-transfer-progress -DargLine="${short[*]}" "$@") > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
    grep -E '^\[INFO\] Tests run: [0-9]+, .*[0-9]$|^\[WARNING\] Tests run:' "$log" || true
}

# The scenarios start many short programs. An archive of their classes makes that cheap; it belongs to one JDK, and another one ignores it.
scenarios() {
    local java=$1/bin/java archive=target/java/scenarios.jsa classes=target/java/deltaq-scenarios
    rm -f "$archive"
    printf '{"command":"add","objects":[{"key":"a"}]}\n' |
        DELTAQ_URL=http://127.0.0.1:9 DELTAQ_QUEUE=q MAX_ATTEMPTS=1 "$java" "${short[@]}" -XX:ArchiveClassesAtExit="$archive" \
            -cp "$classes/scenarios.jar:$classes/lib/*" example.deltaq.scenarios.Program produce > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
    PATH=$1/bin:$PATH CARGO_TARGET_DIR=$PWD/target python3 tests/clients/run.py --client java --server "$DELTAQ_BIN" --jobs 12
}

maven package
scenarios "$JAVA_HOME"
if [ "${1:-}" != --all ]; then exit; fi

echo "Jackson 2.13.5"
maven verify -Djackson.version=2.13.5
echo "Jackson 2.23.0"
maven verify -Djackson.version=2.23.0
echo "Spring Boot 4.0.7"
maven verify --projects deltaq-spring --also-make -Dspring-boot.version=4.0.7
if [ "$newest" != "$JAVA_HOME" ]; then
    echo "$newest"
    JAVA_HOME=$newest maven verify
    scenarios "$newest"
else
    echo "not checked: a JDK that is newer than $JAVA_HOME, because the machine has none" >&2
fi
echo "fabric8, and the documentation of the classes"
maven verify -Pall
# A module gets the packages from the file of a release, which names their group and their package.
mkdir "$work/repository" "$work/program"
python3 -m zipfile -e "$(./scripts/java_packages.py 0.0.1 "$work")" "$work/repository"
folder=$(cd "$work/repository" && find . -name deltaq-test-0.0.1.pom | sed 's|^\./||; s|/deltaq-test/.*||')
cat > "$work/program/pom.xml" << END
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>program</groupId>
  <artifactId>program</artifactId>
  <version>1</version>
  <repositories><repository><id>release</id><url>file://$PWD/$work/repository</url></repository></repositories>
  <dependencies><dependency><groupId>${folder//\//.}</groupId><artifactId>deltaq-test</artifactId><version>0.0.1</version></dependency></dependencies>
</project>
END
# The local repository keeps what it has fetched.
forget() { rm -rf ~/.m2/repository/"$folder"/*/0.0.1; }
forget
(cd "$work/program" && mvn --batch-mode --no-transfer-progress dependency:copy-dependencies -DoutputDirectory=lib) > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
forget
cd "$work/program"
package=$(python3 -m zipfile -l lib/deltaq-0.0.1.jar | sed -n 's|/Client\.class.*||p' | tr / .)
printf 'module program { requires %s; }\n' "$package" > module-info.java
cat > Program.java << END
package program;
class Program {
    public static void main(String[] arguments) {
        try (var client = new $package.Client("http://localhost:7070")) { System.out.println(client.VERSION); }
    }
}
END
"$JAVA_HOME/bin/javac" -p lib -d classes module-info.java Program.java
version=$("$JAVA_HOME/bin/java" -p lib:classes -m program/program.Program)
if [ "$version" != 0.0.1 ]; then
    echo "the client of the release 0.0.1 has the version $version" >&2
    exit 1
fi
