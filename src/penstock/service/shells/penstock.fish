# Completion of the penstock command in fish. Written by `penstock completion fish`.
function __penstock_complete
    set -l line (commandline -cp | string collect)
    set -l program (commandline -opc)[1]
    for found in (env _PENSTOCK_COMPLETE=fish "_PENSTOCK_LINE=$line" $program 2>/dev/null)
        switch $found
            case ':word=*'
            case ':files*'
                __fish_complete_path (commandline -ct)
            case ':folders*'
                __fish_complete_directories (commandline -ct)
            case '*'
                printf '%s\n' $found
        end
    end
end
complete -c penstock -f -a '(__penstock_complete)'
