#compdef penstock
# Completion of the penstock command in zsh. Written by `penstock completion zsh`.
_penstock() {
    local value help
    local -a whole open
    local line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    while IFS=$'\t' read -r value help; do
        case $value in
            :word=*) ;;
            :files) _files ;;
            :folders) _files -/ ;;
            *[=/:]) open+=("${value//:/\\:}:$help") ;;
            *) whole+=("${value//:/\\:}:$help") ;;
        esac
    done < <(_PENSTOCK_COMPLETE=zsh _PENSTOCK_LINE=$line ${~words[1]} 2>/dev/null)
    (( $#whole )) && _describe -V penstock whole
    (( $#open )) && _describe -V penstock open -S ''
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
